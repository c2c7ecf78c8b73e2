/*
 * Collectives among ranks behind one table: `self` (one rank, always there) and `mpi` (when built with it).
 * A world is opened once a process; groups of it are the axes of a mesh. Buffers are host memory. Calls
 * block; tg_comm_post runs them in order on a thread of their own, beside computation. Not here: what is
 * communicated when (parallel, plan).
 */
#ifndef TG_COMM_COMM_H
#define TG_COMM_COMM_H

#include "mesh/mesh.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct tg_comm tg_comm;   /* the world */
typedef struct tg_group tg_group; /* some of its ranks */
typedef enum tg_reduce { TG_REDUCE_SUM, TG_REDUCE_MAX, TG_REDUCE_MIN } tg_reduce;

/* kind "auto": mpi when this process was started by mpirun or srun (environment), else self. */
teng_status tg_comm_open(const char *kind, tg_comm **out);
void tg_comm_close(tg_comm **comm);
int tg_comm_rank(const tg_comm *comm);
int tg_comm_size(const tg_comm *comm);
/* The world of this process for kernels that communicate; NULL: none is open. */
tg_comm *tg_comm_current(void);
/* Makes the groups of all sets of axes of this mesh (collective; mesh->ranks must be the world's size). */
teng_status tg_comm_bind(tg_comm *comm, const tg_mesh *mesh);
/* The group of this rank along the axes, after tg_comm_bind. NULL and an error otherwise. */
tg_group *tg_comm_along(tg_comm *comm, tg_axis_set axes);
tg_group *tg_comm_world(tg_comm *comm);
int tg_group_size(const tg_group *group);
int tg_group_index(const tg_group *group);

/* The texts of all ranks in their order, each with its NUL, in *all (free with tg_free). Collective. */
teng_status tg_comm_gather_texts(tg_comm *comm, const char *text, char **all);

/* Collectives; every member calls with the same arguments where nothing else is said. Sums of bf16 and f16
 * are made in f32 in the order of the ranks. counts[size]: elements of each member. in may be out
 * (all_gather: in may be its own part of out). */
teng_status tg_comm_all_reduce(tg_group *g, tg_reduce op, teng_dtype dtype, const void *in, void *out,
                               int64_t n);
/* Of n tensors at once, as if they lay one behind the other: few rounds for many small ones, the same bits as
 * each by itself. */
teng_status tg_comm_all_reduce_many(tg_group *g, tg_reduce op, teng_dtype dtype, int n, const void *const *in,
                                    void *const *out, const int64_t *counts);
teng_status tg_comm_all_gather(tg_group *g, teng_dtype dtype, const void *in, void *out,
                               const int64_t *counts);
teng_status tg_comm_reduce_scatter(tg_group *g, teng_dtype dtype, const void *in, void *out,
                                   const int64_t *counts);
/* Element counts to and from each member, which may differ by pair; buffers hold them in member order. */
teng_status tg_comm_all_to_all(tg_group *g, teng_dtype dtype, const void *in, const int64_t *send_counts,
                               void *out, const int64_t *receive_counts);
teng_status tg_comm_broadcast(tg_group *g, int root, void *data, size_t bytes);
teng_status tg_comm_barrier(tg_group *g);
/* Pairs of messages; to, from: members, -1 none. Both at once, so that rings cannot lock. */
teng_status tg_comm_exchange(tg_group *g, int to, const void *send, size_t send_bytes, int from,
                             void *receive, size_t receive_bytes);
/* Messages of a pipeline: in order between two members and one tag; send returns when the buffer may be used
 * again. */
teng_status tg_comm_send(tg_group *g, int to, int tag, const void *data, size_t bytes);
teng_status tg_comm_receive(tg_group *g, int from, int tag, void *data, size_t bytes);

/* Beside computation: the call is made by the thread of communication, in the order of the posts. */
typedef uint64_t tg_ticket;
tg_ticket tg_comm_post(tg_comm *comm, teng_status (*call)(void *user), void *user);
teng_status tg_comm_wait(tg_comm *comm, tg_ticket ticket); /* the call's status, with its message */

/* ---- where a rank is, for the messages of those that wait for it ---- */
/* What this process computes now ("backward, model.layers.1.mlp (matmul, lm.c:83)"); one thread alone calls.
 * Cheap, a copy into shared memory, and now and then a look whether all ranks of this host are there: an
 * error names the one that is gone. NULL comm: nothing. */
teng_status tg_comm_doing(tg_comm *comm, const char *text);
void tg_comm_step(tg_comm *comm, int64_t step);
/* The place in the user's source to which the next collectives of this thread belong; the text stays the
 * caller's. NULL: none. */
void tg_comm_at(const char *site);
/* Seconds that a collective waits for the other ranks before it fails and names who is missing and what they
 * do; 0, the default: for ever. From a tenth of it on the log says who is slow. A rank that has died is
 * noticed at once in any case. */
void tg_comm_timeout(tg_comm *comm, double seconds);
/* Which ranks share this host: this one's place among them and how many there are. */
void tg_comm_local(const tg_comm *comm, int *index, int *size);
/* "rank 1 of 4 on node7 (process 1234): cores 2-3", where this rank runs; kept by the world. A world of
 * several ranks a host that nobody has bound shares out the cores when it is opened; with more ranks than
 * cores each computes with one thread, unless OMP_NUM_THREADS says otherwise. Before OpenMP computes for the
 * first time. */
const char *tg_comm_binding(const tg_comm *comm);
/* Every collective is compared among its members before it runs: which, of what, in which order; the error
 * names both calls and their places. For finding mistakes: each call costs a message more. */
void tg_comm_check(tg_comm *comm, bool on);
/* Leaves because of a failure of this rank or of another one: tells the others why, then ends all ranks
 * (MPI_Abort: the process too, with status 1). One rank alone: tg_comm_close. */
void tg_comm_abandon(tg_comm **comm, const char *why);

/* What must be the same on all ranks before they begin. The version, the program file and the byte order are
 * compared too. Collective; on all ranks the error names the first difference, its values and the ranks. */
typedef struct tg_comm_fact {
    const char *name, *value; /* "the configuration", its hash */
} tg_comm_fact;
teng_status tg_comm_hello(tg_comm *comm, const tg_comm_fact *facts, int n);

/* Seconds since the world was opened. */
typedef struct tg_comm_times {
    double busy;    /* in collectives and messages, on whichever thread */
    double exposed; /* of the main thread: in them, or waiting for posted ones. busy - exposed was hidden */
    double waited;  /* of busy: until data had come and gone; the slowest rank's is the smallest */
} tg_comm_times;
tg_comm_times tg_comm_time(const tg_comm *comm);

/* How many ranks the launcher of this process says it started; 0: it was started by none. */
int tg_comm_launched(void);
/* Whether this build has MPI; and why not, or its version. */
bool tg_comm_has_mpi(const char **text);

/* What this rank has sent along each axis set so far, in bytes of the formula of the collective (ring): tests
 * hold strategies against it. */
uint64_t tg_comm_bytes(const tg_comm *comm, tg_axis_set axes);

typedef struct tg_comm_counts {
    tg_comm_times times;
    uint64_t sent[1 << TG_AXES]; /* tg_comm_bytes of each set */
} tg_comm_counts;
/* Adds to *out what has come since `before`, an earlier count; NULL: since the world was opened. */
void tg_comm_count(const tg_comm *comm, const tg_comm_counts *before, tg_comm_counts *out);

#endif
