/*
 * Messages over MPI (Open MPI or MPICH): non-blocking sends and receives in pieces below 2 GiB, waited for in
 * a loop of our own, which gives the core away and notices ranks that are gone. Ranks of one host have memory
 * in common instead (comm_shared.c), unless TENG_SHARED_MEMORY=off is in the environment or there is none.
 * Reductions are not MPI's: in comm_collective.c they are summed in the order of the ranks, the same bits
 * every time and on every rank.
 *
 * One thread at a time calls (MPI_THREAD_SERIALIZED): comm_thread.c sees to it.
 */
#include "base/fail.h"
#include "comm/comm_impl.h"
#include "comm/comm_shared.h"

#ifdef TENG_MPI
#include "base/clock.h"
#include "base/mem.h"
#include "base/vec.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

size_t tg_mpi_piece = (size_t)1 << 30;
#define SPIN_SECONDS 0.01 /* then naps: the others are far behind */
enum { LOOK_MS = 50 };

typedef struct later { /* a message on its way, of whose data nobody waits */
    MPI_Request request;
    void *data; /* with the last piece; NULL before */
} later;
typedef struct mpi {
    MPI_Comm world;
    bool initialised; /* by us */
    TG_VEC(MPI_Request) requests;
    TG_VEC(int) of; /* which transfer a request belongs to */
    TG_VEC(MPI_Status) statuses;
    TG_VEC(bool) done;
    TG_VEC(later) later;
    tg_shared *shared; /* NULL: none */
    int *place;        /* [size] of each rank on this host; -1: on another */
    double spin;       /* seconds of waiting that are spent asking: 0 where ranks share cores */
    TG_VEC(tg_shared_flow) flows;
    TG_VEC(int) flow_of; /* which transfer */
} mpi;

static teng_status failed(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return tg_fail(TENG_IO, "MPI: %s: %s", what, text);
}

/* The ranks of this host: which cores each takes. */
static void share_cores(tg_comm *comm, MPI_Comm host)
{
    cpu_set_t mine, all; /* the same cores for all: nobody has bound them */
    int shared = 0;
    MPI_Comm_rank(host, &comm->local_index);
    MPI_Comm_size(host, &comm->local_size);
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    all = mine;
    MPI_Bcast(&all, sizeof all, MPI_BYTE, 0, host);
    const int same = CPU_EQUAL(&mine, &all);
    MPI_Allreduce(&same, &shared, 1, MPI_INT, MPI_MIN, host);
    tg_comm_share_cores(comm, shared);
}

/* Without memory in common MPI does it. */
static teng_status open_shared(tg_comm *comm, const char *board, MPI_Comm host)
{
    mpi *m = comm->backend;
    char name[80];
    int own = 0, all = 0, off = 0;
    m->place = tg_alloc(sizeof *m->place * (size_t)comm->size);
    int *ranks = tg_alloc(sizeof *ranks * (size_t)comm->local_size);
    if (m->place && ranks) {
        const char *set = getenv("TENG_SHARED_MEMORY");
        off = set && strcmp(set, "off") == 0;
        for (int r = 0; r < comm->size; r++)
            m->place[r] = -1;
    }
    const bool first = comm->local_index == 0, tries = m->place && ranks && !off && comm->local_size > 1;
    snprintf(name, sizeof name, "%s-rings", board);
    if (first && tries) own = tg_shared_open(name, 0, comm->local_size, true, &m->shared) == TENG_OK;
    MPI_Barrier(host);
    if (!first && tries)
        own = tg_shared_open(name, comm->local_index, comm->local_size, false, &m->shared) == TENG_OK;
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, host);
    if (first && own) tg_shared_unlink(name);
    if (all && m->place && ranks) {
        MPI_Allgather(&comm->rank, 1, MPI_INT, ranks, 1, MPI_INT, host);
        for (int i = 0; i < comm->local_size; i++)
            m->place[ranks[i]] = i;
    } else {
        tg_shared_close(&m->shared, false);
    }
    teng_error_clear();
    const bool room = m->place && ranks;
    tg_free(ranks);
    return room ? TENG_OK : TENG_MEMORY;
}

/* An error on one rank is an error on all: they go on together. */
static teng_status open_board(tg_comm *comm, MPI_Comm world, MPI_Comm host)
{
    char name[64] = "";
    const bool first = comm->local_index == 0;
    int failures = 0;
    if (comm->rank == 0)
        snprintf(name, sizeof name, "/teng-%d-%lld", (int)getpid(), (long long)tg_clock_unix());
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, world);
    teng_status status = TENG_OK;
    if (first) status = tg_board_open(name, comm->rank, comm->size, true, &comm->board);
    MPI_Barrier(host);
    if (!first) status = tg_board_open(name, comm->rank, comm->size, false, &comm->board);
    MPI_Barrier(host);
    if (first) tg_board_unlink(name);
    if (status == TENG_OK) tg_board_start(comm->board);
    const teng_status shared = open_shared(comm, name, host);
    if (status == TENG_OK) status = shared;
    const int failed = status != TENG_OK;
    MPI_Allreduce(&failed, &failures, 1, MPI_INT, MPI_SUM, world);
    if (failures && !failed) return tg_fail(TENG_IO, "%d other ranks could not start", failures);
    return status;
}

static teng_status open_mpi(tg_comm *comm)
{
    int provided = 0, already = 0;
    mpi *m = tg_calloc(1, sizeof *m);
    if (!m) return TENG_MEMORY;
    comm->backend = m;
    MPI_Initialized(&already);
    if (!already) {
        /* Open MPI between processes of one host: copies through shared memory were measured 3 to 5 times as
         * fast as the kernel's process_vm_readv (4 MiB messages: 18 against 4 to 6 GB/s). */
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
        const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
        if (code != MPI_SUCCESS) return failed(code, "MPI_Init_thread");
        m->initialised = true;
        /* MPICH asks the world's handler, whichever communicator a failed request belongs to. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    }
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_SERIALIZED)
        return tg_fail(TENG_UNSUPPORTED, "this MPI lets only its first thread communicate "
                                         "(MPI_THREAD_SERIALIZED is needed)");
    MPI_Comm_dup(MPI_COMM_WORLD, &m->world);
    MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->world, &comm->rank);
    MPI_Comm_size(m->world, &comm->size);
    const int launched = tg_comm_launched();
    if (launched > 1 && comm->size == 1) {
        const char *version;
        tg_comm_has_mpi(&version);
        return tg_fail(TENG_UNSUPPORTED,
                       "%d ranks were started, and each is alone: this teng is built with %s, which their "
                       "launcher does not belong to. Start them with its mpirun (teng launch does), or srun "
                       "--mpi=pmix or pmi2",
                       launched, version);
    }
    MPI_Comm host; /* the ranks that share memory */
    MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &host);
    share_cores(comm, host);
    m->spin = comm->local_size <= tg_comm_cores() ? SPIN_SECONDS : 0;
    const teng_status status = comm->size > 1 ? open_board(comm, m->world, host) : TENG_OK;
    MPI_Comm_free(&host);
    return status;
}

static void forget_sent(mpi *m, bool all)
{
    while (m->later.len) {
        int done = 0;
        if (all)
            MPI_Wait(&m->later.data[0].request, MPI_STATUS_IGNORE), done = 1;
        else
            MPI_Test(&m->later.data[0].request, &done, MPI_STATUS_IGNORE);
        if (!done) return;
        tg_free(m->later.data[0].data);
        memmove(m->later.data, m->later.data + 1, (m->later.len - 1) * sizeof(later));
        m->later.len--;
    }
}

/* After a failure the others may never come, and MPI_Finalize would wait for them for ever. MPICH's launcher
 * drops what ranks have printed and it has not read yet, so that the reason would be lost: it gets time. */
static void abort_mpi(tg_comm *comm)
{
    const mpi *m = comm->backend;
    if (!m->initialised) return;
    fflush(NULL);
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void close_mpi(tg_comm *comm)
{
    mpi *m = comm->backend;
    tg_shared_close(&m->shared, !comm->broken);
    if (m->initialised && !comm->broken) {
        forget_sent(m, true);
        MPI_Finalize();
    }
    tg_vec_free(&m->requests);
    tg_vec_free(&m->of);
    tg_vec_free(&m->statuses);
    tg_vec_free(&m->done);
    tg_vec_free(&m->later);
    tg_vec_free(&m->flows);
    tg_vec_free(&m->flow_of);
    tg_free(m->place);
    tg_free(m);
    comm->backend = NULL;
}

static teng_status post_one(mpi *m, const tg_transfer *t, int which)
{
    for (size_t at = 0; at == 0 || at < t->bytes; at += tg_mpi_piece) {
        const size_t n = t->bytes - at < tg_mpi_piece ? t->bytes - at : tg_mpi_piece;
        MPI_Request r;
        const int code =
            t->send ? MPI_Isend((char *)t->data + at, (int)n, MPI_BYTE, t->peer, t->tag, m->world, &r)
                    : MPI_Irecv((char *)t->data + at, (int)n, MPI_BYTE, t->peer, t->tag, m->world, &r);
        if (code != MPI_SUCCESS) return failed(code, t->send ? "MPI_Isend" : "MPI_Irecv");
        if (!tg_vec_push(&m->requests, r) || !tg_vec_push(&m->of, which)) return TENG_MEMORY;
    }
    return TENG_OK;
}

/* Which transfers are done: those none of whose requests is still active. */
static teng_status look(tg_comm *comm, double began, double *warn, const tg_transfer *t, int n)
{
    mpi *m = comm->backend;
    if (!tg_vec_reserve(&m->done, (size_t)n)) return TENG_MEMORY;
    for (int i = 0; i < n; i++)
        m->done.data[i] = true;
    for (size_t k = 0; k < m->requests.len; k++)
        if (m->requests.data[k] != MPI_REQUEST_NULL) m->done.data[m->of.data[k]] = false;
    for (size_t k = 0; k < m->flows.len; k++)
        if (!m->flows.data[k].done) m->done.data[m->flow_of.data[k]] = false;
    return tg_comm_look_around(comm, began, warn, t, n, m->done.data);
}

static teng_status wrong_size(const tg_comm *comm, const tg_transfer *t, bool longer)
{
    return tg_fail(TENG_STATE,
                   "rank %d waits for %zu bytes from rank %d in %s, and %s came: their collectives differ "
                   "(parallel.check=true says where)",
                   comm->rank, t->bytes, t->peer, comm->call, longer ? "more" : "fewer");
}

/* What came must have the size that was waited for. */
static teng_status want_sizes(tg_comm *comm, const tg_transfer *t)
{
    const mpi *m = comm->backend;
    for (size_t k = 0, piece = 0; k < m->requests.len; k++) {
        const tg_transfer *x = &t[m->of.data[k]];
        piece = k && m->of.data[k] == m->of.data[k - 1] ? piece + 1 : 0;
        if (x->send) continue;
        const size_t left = x->bytes - piece * tg_mpi_piece, want = left < tg_mpi_piece ? left : tg_mpi_piece;
        int error = 0, got = 0;
        MPI_Error_class(m->statuses.data[k].MPI_ERROR, &error);
        const bool longer = error == MPI_ERR_TRUNCATE;
        MPI_Get_count(&m->statuses.data[k], MPI_BYTE, &got);
        if (longer || (size_t)got != want) return wrong_size(comm, x, longer);
    }
    return TENG_OK;
}

/* Once: moves what can be moved, in shared memory and by MPI. */
static teng_status progress(tg_comm *comm, const tg_transfer *t, bool *moved, bool *all)
{
    mpi *m = comm->backend;
    int which = 0, flag = 1;
    size_t got = 0;
    *moved = false;
    *all = true;
    if (m->flows.len) {
        const teng_status status =
            tg_shared_move(m->shared, m->flows.data, (int)m->flows.len, moved, &which, &got);
        if (status == TENG_STATE)
            return wrong_size(comm, &t[m->flow_of.data[which]], got > m->flows.data[which].bytes);
        if (status != TENG_OK) return status;
        for (size_t k = 0; k < m->flows.len && *all; k++)
            *all = m->flows.data[k].done;
    }
    if (m->requests.len) {
        const int code = MPI_Testall((int)m->requests.len, m->requests.data, &flag, m->statuses.data);
        if (code != MPI_SUCCESS) {
            TG_TRY(want_sizes(comm, t));
            return failed(code, comm->call);
        }
    }
    *all = *all && flag;
    return TENG_OK;
}

/* A thread beside computation does not spin: it would take the core. */
static teng_status wait_all(tg_comm *comm, const tg_transfer *t, int n)
{
    mpi *m = comm->backend;
    const double began = tg_clock_seconds(), spin = tg_comm_on_thread(comm) ? 0 : m->spin;
    double looked = began, idle = began, warn = 0;
    if (!tg_vec_reserve(&m->statuses, m->requests.len)) return TENG_MEMORY;
    for (size_t k = 0; k < m->requests.len; k++)
        m->statuses.data[k].MPI_ERROR = MPI_SUCCESS; /* set only when a call fails */
    for (int64_t spins = 0;; spins++) {
        const unsigned seen = m->shared ? tg_shared_seen(m->shared) : 0;
        bool moved, all;
        TG_TRY(progress(comm, t, &moved, &all));
        if (all) return want_sizes(comm, t);
        const double now = tg_clock_seconds();
        if (moved) idle = now;
        if (moved || now - idle < spin) {
            if (spins % 16 == 15) sched_yield(); /* the core may be shared */
            continue;
        }
        if (m->requests.len)
            nanosleep(&(struct timespec){0, 30000}, NULL);
        else
            tg_shared_sleep(m->shared, seen, LOOK_MS);
        if (now - looked < LOOK_MS * 1e-3) continue;
        looked = now;
        TG_TRY(look(comm, began, &warn, t, n));
    }
}

static teng_status begin_one(mpi *m, const tg_transfer *t, int which)
{
    const int place = m->shared ? m->place[t->peer] : -1;
    if (place < 0) return post_one(m, t, which);
    const tg_shared_flow f = {place, t->tag, t->send, t->data, t->bytes, 0, false};
    return tg_vec_push(&m->flows, f) && tg_vec_push(&m->flow_of, which) ? TENG_OK : TENG_MEMORY;
}

static teng_status transfer(tg_comm *comm, const tg_transfer *t, int n)
{
    mpi *m = comm->backend;
    forget_sent(m, false);
    m->requests.len = m->of.len = m->flows.len = m->flow_of.len = 0;
    for (int i = 0; i < n; i++) /* receives first: nothing then arrives unexpected */
        if (!t[i].send) TG_TRY(begin_one(m, &t[i], i));
    for (int i = 0; i < n; i++)
        if (t[i].send) TG_TRY(begin_one(m, &t[i], i));
    return wait_all(comm, t, n);
}

static teng_status send_later(tg_comm *comm, int peer, int tag, void *data, size_t bytes)
{
    mpi *m = comm->backend;
    if (m->shared && m->place[peer] >= 0)
        return tg_shared_send_later(m->shared, m->place[peer], tag, data, bytes);
    forget_sent(m, false);
    m->requests.len = m->of.len = 0;
    const teng_status status = post_one(m, &(tg_transfer){peer, tag, true, data, bytes}, 0);
    for (size_t k = 0; k < m->requests.len; k++) {
        const later l = {m->requests.data[k], k + 1 == m->requests.len ? data : NULL};
        if (!tg_vec_push(&m->later, l)) return TENG_MEMORY;
    }
    return status;
}

const tg_comm_ops tg_comm_mpi = {"mpi", open_mpi, close_mpi, abort_mpi, transfer, send_later};

/* "Open MPI v4.1.4", "MPICH 4.0.2": MPI's own text begins "Open MPI v4.1.4, package: …" and "MPICH
 * Version:\t4.0.2\n…". */
bool tg_comm_has_mpi(const char **text)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    static const char mpich[] = "MPICH Version:";
    int n = 0;
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = 0;
    if (strncmp(version, mpich, sizeof mpich - 1) == 0) {
        char *number = version + sizeof mpich - 1;
        number += strspn(number, " \t");
        memmove(version + 6, number, strlen(number) + 1);
    }
    *text = version;
    return true;
}
#else
size_t tg_mpi_piece;
static teng_status no_mpi(tg_comm *comm)
{
    (void)comm;
    return tg_fail(TENG_UNSUPPORTED,
                   "this teng was built without MPI and knows one rank alone; install an MPI (Debian: "
                   "openmpi-bin libopenmpi-dev) and build again");
}
const tg_comm_ops tg_comm_mpi = {.kind = "mpi", .open = no_mpi};

bool tg_comm_has_mpi(const char **text)
{
    *text = "built without MPI: one rank alone";
    return false;
}
#endif
