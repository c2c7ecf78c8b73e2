/* See team.h. */
#include "train/team.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/strmap.h"

#include <limits.h>
#include <string.h>

static bool agreed; /* the pending error is on every rank */

teng_status tg_team_open(tg_team **out)
{
    *out = NULL;
    tg_team *t = tg_calloc(1, sizeof *t);
    if (!t) return TENG_MEMORY;
    agreed = false;
    t->comm = tg_comm_current();
    teng_status status = TENG_OK;
    if (!t->comm) {
        status = tg_comm_open("auto", &t->comm);
        t->owns = true;
    }
    if (status != TENG_OK) {
        tg_free(t);
        return status;
    }
    t->rank = tg_comm_rank(t->comm);
    t->ranks = tg_comm_size(t->comm);
    *out = t;
    return TENG_OK;
}

void tg_team_close(tg_team **team)
{
    tg_team *t = *team;
    if (!t) return;
    if (t->owns) tg_comm_close(&t->comm);
    tg_free(t);
    *team = NULL;
}

teng_status tg_team_mesh(const tg_config *cfg, int ranks, tg_mesh *out)
{
    int64_t axes[TG_CONFIG_AXES];
    int size[TG_AXES];
    _Static_assert((int)TG_CONFIG_AXES == (int)TG_AXES,
                   "the axes of the configuration are those of the mesh");
    tg_config_axes(cfg, ranks, axes);
    for (int a = 0; a < TG_AXES; a++)
        size[a] = (int)axes[a];
    return tg_mesh_make(size, ranks, out);
}

teng_status tg_team_bind(tg_team *t, const tg_config *cfg)
{
    TG_TRY(tg_team_mesh(cfg, t->ranks, &t->mesh));
    TG_TRY(tg_comm_bind(t->comm, &t->mesh));
    tg_comm_timeout(t->comm, cfg->parallel.timeout);
    tg_comm_check(t->comm, cfg->parallel.check);
    return TENG_OK;
}

static void place_on(const tg_team *t, tg_axis_set axes, int *index, int *count)
{
    *index = 0;
    *count = 1;
    if (tg_team_is_many(t)) *count = tg_mesh_group(&t->mesh, t->rank, axes, NULL, index);
}

void tg_team_rows(const tg_team *team, int *index, int *count)
{
    place_on(team, TG_DATA_AXES | 1u << TG_AXIS_EXPERT, index, count);
}

void tg_team_columns(const tg_team *team, int *index, int *count)
{
    place_on(team, 1u << TG_AXIS_CONTEXT, index, count);
}

/* ---- agreement ---- */
bool tg_team_agreed(const tg_team *team)
{
    return !tg_team_is_many(team) || agreed;
}

typedef struct outcome {
    int64_t status;
    uint64_t message; /* hash */
} outcome;

/* The lowest rank that failed, -1: none; *all: every rank says the same. */
static teng_status find_failed(tg_team *t, const tg_error *own, int *first, bool *all)
{
    const outcome mine = {own->status, tg_hash64(own->message, strlen(own->message), 0)};
    outcome *every = tg_alloc(sizeof *every * (size_t)t->ranks);
    int64_t *counts = tg_alloc(sizeof *counts * (size_t)t->ranks);
    for (int r = 0; counts && r < t->ranks; r++)
        counts[r] = sizeof mine;
    const teng_status status = every && counts
                                   ? tg_comm_all_gather(tg_comm_world(t->comm), TENG_U8, &mine, every, counts)
                                   : TENG_MEMORY;
    tg_free(counts);
    *first = -1;
    *all = true;
    for (int r = t->ranks - 1; r >= 0 && status == TENG_OK; r--) {
        if (every[r].status != TENG_OK) *first = r;
        if (every[r].status != every[0].status || every[r].message != every[0].message) *all = false;
    }
    tg_free(every);
    return status;
}

teng_status tg_team_agree(tg_team *t, teng_status status)
{
    if (!tg_team_is_many(t)) return status;
    tg_error error = {0};
    int first;
    bool all;
    if (status != TENG_OK) tg_error_take(&error);
    if (error.status == TENG_OK) error.status = status; /* without a message: memory */
    agreed = false;
    TG_TRY(find_failed(t, &error, &first, &all));
    if (first < 0) return TENG_OK;
    TG_TRY(tg_comm_broadcast(tg_comm_world(t->comm), first, &error, sizeof error));
    agreed = true;
    return all ? tg_fail(error.status, "%s", error.message)
               : tg_fail(error.status, "rank %d: %s", first,
                         *error.message ? error.message : "out of memory");
}

teng_status tg_team_hello(tg_team *t)
{
    if (!tg_team_is_many(t)) return TENG_OK;
    const teng_status status = tg_comm_hello(t->comm, NULL, 0);
    agreed = status != TENG_OK; /* every rank has the same answer */
    return status;
}

teng_status tg_team_max(tg_team *t, int32_t *values, int n)
{
    agreed = false; /* of a failure that the run went on after */
    if (!tg_team_is_many(t)) return TENG_OK;
    return tg_comm_all_reduce(tg_comm_world(t->comm), TG_REDUCE_MAX, TENG_I32, values, values, n);
}

teng_status tg_team_sum_labels(tg_team *t, int64_t *values, int n)
{
    if (!tg_team_is_many(t)) return TENG_OK;
    tg_group *g = tg_comm_along(t->comm, TG_DATA_AXES | 1u << TG_AXIS_EXPERT | 1u << TG_AXIS_CONTEXT);
    return g ? tg_comm_all_reduce(g, TG_REDUCE_SUM, TENG_I64, values, values, n) : teng_error_status();
}

teng_status tg_team_sum(tg_team *t, double *values, int n)
{
    if (!tg_team_is_many(t)) return TENG_OK;
    tg_group *g = tg_comm_along(t->comm, TG_DATA_AXES);
    return g ? tg_comm_all_reduce(g, TG_REDUCE_SUM, TENG_F64, values, values, n) : teng_error_status();
}

teng_status tg_team_gather_text(tg_team *t, const char *text, char **all)
{
    *all = NULL;
    if (!tg_team_is_many(t)) {
        *all = tg_strdup(text);
        return *all ? TENG_OK : TENG_MEMORY;
    }
    return tg_comm_gather_texts(t->comm, text, all);
}

teng_status tg_team_first_text(tg_team *t, const char *text, char **out)
{
    *out = NULL;
    if (tg_team_is_many(t)) {
        uint64_t bytes = strlen(text) + 1;
        tg_group *world = tg_comm_world(t->comm);
        TG_TRY(tg_comm_broadcast(world, 0, &bytes, sizeof bytes));
        char *copy = tg_alloc(bytes);
        if (!copy) return TENG_MEMORY;
        if (t->rank == 0) memcpy(copy, text, bytes);
        const teng_status status = tg_comm_broadcast(world, 0, copy, bytes);
        if (status != TENG_OK) tg_free(copy);
        if (status == TENG_OK) *out = copy;
        return status;
    }
    *out = tg_strdup(text);
    return *out ? TENG_OK : TENG_MEMORY;
}
