/* Inside of comm: what a backend gives. Collectives are made of transfers (comm.c), the same for all. */
#ifndef TG_COMM_COMM_IMPL_H
#define TG_COMM_COMM_IMPL_H

#include "comm/comm.h"

#include <stdbool.h>

/* One message of a collective; peer is a rank of the world, never this one. */
typedef struct tg_transfer {
    int peer;
    int tag;
    bool send;
    void *data; /* read only when send */
    size_t bytes;
} tg_transfer;

typedef struct tg_comm_ops {
    const char *kind;
    teng_status (*open)(tg_comm *comm); /* sets rank, size */
    void (*close)(tg_comm *comm);
    /* All n at once; returns when all are done. Messages of a pair and tag keep their order. */
    teng_status (*transfer)(tg_comm *comm, const tg_transfer *t, int n);
    /* Takes data (heap, of tg_alloc) over and frees it when it has been sent. */
    teng_status (*send_later)(tg_comm *comm, int peer, int tag, void *data, size_t bytes);
} tg_comm_ops;
extern const tg_comm_ops tg_comm_self, tg_comm_mpi;

/* What each rank of this host is doing, seen by the others (comm_board.c). */
typedef struct tg_board tg_board;
teng_status tg_board_open(const char *name, int rank, int size, bool create, tg_board **out);
void tg_board_unlink(const char *name);
void tg_board_close(tg_board **board);
void tg_board_write(tg_board *board, const char *text);
/* What rank was last doing and for how many seconds; false: nothing is known (another host). */
bool tg_board_read(const tg_board *board, int rank, char *text, size_t size, double *seconds);
/* A rank of this host whose process is gone without having closed; -1: none. */
int tg_board_dead(const tg_board *board, int *pid);

struct tg_group {
    tg_comm *comm;
    int n, index;
    int *ranks; /* [n] of the world */
    tg_axis_set axes;
};

struct tg_comm {
    const tg_comm_ops *ops;
    void *backend;
    int rank, size;
    tg_group world;
    tg_group *along; /* [1 << TG_AXES] after bind */
    tg_board *board;
    double timeout;  /* seconds that a collective waits for the others; 0: for ever */
    bool broken;     /* a transfer failed: the others cannot be waited for */
    char doing[512]; /* the collective, for messages */
    void *scratch;
    size_t scratch_bytes;
    struct tg_comm_thread *thread; /* NULL until the first post */
    int local_index, local_size;
    char binding[512];
    uint64_t bytes[1 << TG_AXES];
};
void *tg_comm_scratch(tg_comm *comm, size_t bytes); /* NULL and an error when memory is out */
/* Called by a backend while it waits: an error when a rank is gone or the wait is too long. began: when. */
teng_status tg_comm_look_around(tg_comm *comm, double began, const tg_transfer *t, int n, const bool *done);
teng_status tg_comm_drain(tg_comm *comm); /* until all that was posted is done (not on the thread itself) */
void tg_comm_thread_end(tg_comm *comm);
/* Shares out the cores among the ranks of this host (local_index, local_size are set; shared: all of them may
 * run on the same cores) and says in binding what came of it. */
void tg_comm_share_cores(tg_comm *comm, bool shared);

#endif
