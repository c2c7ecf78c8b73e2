/* Inside of comm: what a backend gives. Collectives are made of transfers (comm_collective.c), the same for
 * all.
 */
#ifndef TG_COMM_COMM_IMPL_H
#define TG_COMM_COMM_IMPL_H

#include "base/vec.h"
#include "comm/comm.h"

#include <stdbool.h>

enum { TG_TAG_COLLECTIVE = 1, TG_TAG_EXCHANGE, TG_TAG_CHECK, TG_TAG_MESSAGE = 16 };

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
    teng_status (*open)(tg_comm *comm); /* sets rank, size, board */
    void (*close)(tg_comm *comm);
    void (*abort)(tg_comm *comm); /* ends all ranks */
    /* All n at once; returns when all are done. Messages of a pair and tag keep their order. A message of
     * another size than the receiver's is an error. */
    teng_status (*transfer)(tg_comm *comm, const tg_transfer *t, int n);
    /* Takes data (heap, of tg_alloc) over and frees it when it has been sent. */
    teng_status (*send_later)(tg_comm *comm, int peer, int tag, void *data, size_t bytes);
} tg_comm_ops;
extern const tg_comm_ops tg_comm_self, tg_comm_mpi;
extern size_t tg_mpi_piece; /* bytes of one MPI message at most, below 2 GiB; tests make it small */

/* What each rank of this host is doing, seen by the others (comm_board.c). */
#define TG_BOARD_TEXT 480
typedef struct tg_board tg_board;
teng_status tg_board_open(const char *name, int rank, int size, bool create, tg_board **out);
void tg_board_unlink(const char *name);
void tg_board_close(tg_board **board);
/* After all ranks of the host have opened it. */
void tg_board_start(tg_board *board);
void tg_board_step(tg_board *board, int64_t step);
void tg_board_doing(tg_board *board, const char *text); /* one thread alone */
void tg_board_call(tg_board *board, const char *text);  /* the collective it is in; "": none. One at a time */
/* Why this rank ends; follows: because another one did. */
void tg_board_leave(tg_board *board, const char *why, bool follows);
/* What rank does, and for how long, as a sentence; false: nothing is known (another host). */
bool tg_board_read(const tg_board *board, int rank, char *text, size_t size);
/* A rank of this host that will not come any more, and why: its process is gone, or it left. -1: none. */
int tg_board_lost(const tg_board *board, char *why, size_t size);
/* This rank still waits for a message of peer; -1: no more. */
void tg_board_waits(tg_board *board, int peer);
/* Follows who waits for whom from that rank on: the first that waits for nobody, or no longer looks. */
int tg_board_cause(const tg_board *board, int rank);
/* Whether all other ranks of this host have left or ended. */
bool tg_board_alone(const tg_board *board);

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
    tg_group *along;               /* [1 << TG_AXES] after bind */
    tg_board *board;               /* NULL: one rank alone */
    double timeout;                /* seconds that a collective waits for the others; 0: for ever */
    double looked;                 /* when tg_comm_doing last looked whether all are there */
    bool check;                    /* collectives are compared before they run */
    bool broken;                   /* a transfer failed: the others cannot be waited for */
    bool follows;                  /* because another rank is lost */
    char call[256];                /* the collective of now, for messages */
    TG_VEC(tg_transfer) transfers; /* of the collective of now */
    size_t *lists;                 /* [4][size] bytes and offsets */
    int64_t *cuts;                 /* [2][size] */
    void *scratch;
    size_t scratch_bytes;
    struct tg_comm_thread *thread; /* NULL until the first post */
    int local_index, local_size;
    char binding[512];
    tg_comm_times times;
    double entered;
    uint64_t bytes[1 << TG_AXES];
};
const char *tg_comm_site(void);                     /* of this thread's calls; NULL: unknown */
void *tg_comm_scratch(tg_comm *comm, size_t bytes); /* NULL and an error when memory is out */
/* Begins a collective: waits for those posted, tells the board, compares it with the others'. */
teng_status tg_comm_enter(tg_group *g, const char *fmt, ...) TENG_PRINTF(2, 3);
/* Ends it; returns status. */
teng_status tg_comm_leave(tg_group *g, teng_status status);
/* The transfers of a collective; after a failure the world is broken. */
teng_status tg_comm_transfer(tg_comm *comm, const tg_transfer *t, int n);
/* Called by a backend while it waits: an error when a rank is gone or the wait is too long. began: when;
 * *warn: seconds after which a line goes to the log, doubled each time (0 at first). */
teng_status tg_comm_look_around(tg_comm *comm, double began, double *warn, const tg_transfer *t, int n,
                                const bool *done);
/* All members must be about to make the same call. */
teng_status tg_comm_compare(tg_group *g);
teng_status tg_comm_drain(tg_comm *comm); /* until all that was posted is done (not on the thread itself) */
bool tg_comm_on_thread(const tg_comm *comm);
void tg_comm_thread_end(tg_comm *comm);
/* Shares out the cores among the ranks of this host (local_index, local_size are set; shared: all of them may
 * run on the same cores) and says in binding what came of it. */
void tg_comm_share_cores(tg_comm *comm, bool shared);
int tg_comm_cores(void); /* of this host, online */

#endif
