/*
 * The world, its groups, and how a collective begins and ends. Not here: what collectives do
 * (comm_collective.c), how messages travel (comm_mpi.c), whether the other ranks are there (comm_watch.c).
 */
#include "comm/comm.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "comm/comm_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static tg_comm *current;

tg_comm *tg_comm_current(void)
{
    return current;
}

/* ---- the world ---- */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

/* How many ranks the launcher says it started; 0: this process was not started by one. */
int tg_comm_launched(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    int n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && n < 1; i++)
        n = number_of(sizes[i]);
    return n < 1 && getenv("PMIX_RANK") ? 1 : n;
}

static const tg_comm_ops *backend(const char *kind)
{
    const char *text;
    if (strcmp(kind, "self") == 0) return &tg_comm_self;
    if (strcmp(kind, "mpi") == 0) return &tg_comm_mpi;
    if (strcmp(kind, "auto") != 0) return NULL;
    const int n = tg_comm_launched();
    return n > 1 || (n == 1 && tg_comm_has_mpi(&text)) ? &tg_comm_mpi : &tg_comm_self;
}

static teng_status make(tg_comm *c)
{
    TG_TRY(c->ops->open(c));
    const size_t n = (size_t)c->size;
    c->world = (tg_group){c, c->size, c->rank, tg_alloc(sizeof(int) * n), (1u << TG_AXES) - 1};
    c->lists = tg_alloc(sizeof *c->lists * 4 * n);
    c->cuts = tg_alloc(sizeof *c->cuts * 2 * n);
    if (!c->world.ranks || !c->lists || !c->cuts || !tg_vec_reserve(&c->transfers, 2 * n)) return TENG_MEMORY;
    for (int r = 0; r < c->size; r++)
        c->world.ranks[r] = r;
    return TENG_OK;
}

teng_status tg_comm_open(const char *kind, tg_comm **out)
{
    const tg_comm_ops *ops = backend(kind);
    *out = NULL;
    if (!ops)
        return tg_fail(TENG_INVALID, "\"%s\" is no kind of communication: there are auto, self, mpi", kind);
    if (current) return tg_fail(TENG_STATE, "the ranks of this process are connected already");
    tg_comm *c = tg_calloc(1, sizeof *c);
    if (!c) return TENG_MEMORY;
    c->ops = ops;
    const teng_status status = make(c);
    if (status != TENG_OK) {
        tg_comm_close(&c);
        return status;
    }
    *out = current = c;
    return TENG_OK;
}

static void free_groups(tg_comm *c)
{
    for (int s = 0; c->along && s < 1 << TG_AXES; s++)
        tg_free(c->along[s].ranks);
    tg_free(c->along);
    c->along = NULL;
}

void tg_comm_close(tg_comm **comm)
{
    tg_comm *c = *comm;
    if (!c) return;
    tg_comm_thread_end(c);
    if (c->backend) {
        if (c->broken) c->ops->abort(c);
        c->ops->close(c);
    }
    tg_board_close(&c->board);
    free_groups(c);
    tg_free(c->world.ranks);
    tg_free(c->lists);
    tg_free(c->cuts);
    tg_free_aligned(c->scratch);
    tg_vec_free(&c->transfers);
    if (current == c) current = NULL;
    tg_free(c);
    *comm = NULL;
}

/* The others see why on the board, say so and leave too; the last one, or the first whose patience ends, ends
 * all. */
void tg_comm_abandon(tg_comm **comm, const char *why)
{
    tg_comm *c = *comm;
    if (!c) return;
    if (c->size > 1) {
        c->broken = true;
        if (c->board) tg_board_leave(c->board, why, c->follows);
        for (int i = 0; c->board && i < 40 && !tg_board_alone(c->board); i++)
            nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    tg_comm_close(comm);
}

int tg_comm_rank(const tg_comm *comm)
{
    return comm->rank;
}

int tg_comm_size(const tg_comm *comm)
{
    return comm->size;
}

tg_group *tg_comm_world(tg_comm *comm)
{
    return &comm->world;
}

teng_status tg_comm_bind(tg_comm *c, const tg_mesh *mesh)
{
    if (mesh->ranks != c->size)
        return tg_fail(TENG_INVALID, "the mesh has %d ranks, %d were started", mesh->ranks, c->size);
    free_groups(c);
    c->along = tg_calloc((size_t)1 << TG_AXES, sizeof *c->along);
    if (!c->along) return TENG_MEMORY;
    for (tg_axis_set s = 0; s < 1u << TG_AXES; s++) {
        tg_group *g = &c->along[s];
        *g = (tg_group){c, 0, 0, tg_alloc(sizeof(int) * (size_t)c->size), s};
        if (!g->ranks) return TENG_MEMORY;
        g->n = tg_mesh_group(mesh, c->rank, s, g->ranks, &g->index);
    }
    return TENG_OK;
}

tg_group *tg_comm_along(tg_comm *c, tg_axis_set axes)
{
    if (c && c->along && axes < 1u << TG_AXES) return &c->along[axes];
    tg_fail(TENG_STATE, c ? "the ranks have no mesh yet"
                          : "a collective needs ranks that are connected; this process is alone");
    return NULL;
}

int tg_group_size(const tg_group *group)
{
    return group->n;
}

int tg_group_index(const tg_group *group)
{
    return group->index;
}

uint64_t tg_comm_bytes(const tg_comm *comm, tg_axis_set axes)
{
    return comm->bytes[axes];
}

void tg_comm_timeout(tg_comm *comm, double seconds)
{
    comm->timeout = seconds;
}

void tg_comm_local(const tg_comm *comm, int *index, int *size)
{
    *index = comm->local_index;
    *size = comm->local_size;
}

const char *tg_comm_binding(const tg_comm *comm)
{
    return comm->binding;
}

void tg_comm_check(tg_comm *comm, bool on)
{
    comm->check = on;
}

tg_comm_times tg_comm_time(const tg_comm *comm)
{
    return comm->times;
}

void tg_comm_count(const tg_comm *comm, const tg_comm_counts *before, tg_comm_counts *out)
{
    const tg_comm_counts none = {0}, *from = before ? before : &none;
    const tg_comm_times now = tg_comm_time(comm);
    out->times.busy += now.busy - from->times.busy;
    out->times.exposed += now.exposed - from->times.exposed;
    out->times.waited += now.waited - from->times.waited;
    for (tg_axis_set s = 0; s < 1u << TG_AXES; s++)
        out->sent[s] += tg_comm_bytes(comm, s) - from->sent[s];
}

void *tg_comm_scratch(tg_comm *c, size_t bytes)
{
    if (bytes <= c->scratch_bytes) return c->scratch;
    tg_free_aligned(c->scratch);
    c->scratch = tg_alloc_aligned(bytes);
    c->scratch_bytes = c->scratch ? bytes : 0;
    return c->scratch;
}

/* ---- a collective begins and ends ---- */
teng_status tg_comm_enter(tg_group *g, const char *fmt, ...)
{
    tg_comm *c = g->comm;
    char axes[TG_AXES_TEXT];
    va_list args;
    TG_TRY(tg_comm_drain(c));
    if (g->n == 1) return TENG_OK;
    c->entered = tg_clock_seconds();
    va_start(args, fmt);
    int n = vsnprintf(c->call, sizeof c->call, fmt, args);
    va_end(args);
    if (n > (int)sizeof c->call - 1) n = (int)sizeof c->call - 1;
    const bool all = g->axes == (1u << TG_AXES) - 1;
    snprintf(c->call + n, sizeof c->call - (size_t)n, all ? " among %s%d ranks" : " along %s, %d ranks",
             all ? "all " : tg_axes_text(axes, sizeof axes, g->axes), g->n);
    if (c->board) tg_board_call(c->board, c->call);
    return c->check ? tg_comm_compare(g) : TENG_OK;
}

teng_status tg_comm_leave(tg_group *g, teng_status status)
{
    tg_comm *c = g->comm;
    if (g->n == 1) return status;
    if (c->board && status == TENG_OK) tg_board_call(c->board, "");
    const double seconds = tg_clock_seconds() - c->entered;
    c->times.busy += seconds;
    if (!tg_comm_on_thread(c)) c->times.exposed += seconds;
    return status;
}

static _Thread_local const char *site;

void tg_comm_at(const char *at)
{
    site = at;
}

const char *tg_comm_site(void)
{
    return site;
}

teng_status tg_comm_transfer(tg_comm *c, const tg_transfer *t, int n)
{
    if (!n) return TENG_OK;
    const double began = tg_clock_seconds();
    const teng_status status = c->ops->transfer(c, t, n);
    c->times.waited += tg_clock_seconds() - began;
    if (c->board && status == TENG_OK) tg_board_waits(c->board, -1);
    if (status != TENG_OK) c->broken = true;
    return status;
}
