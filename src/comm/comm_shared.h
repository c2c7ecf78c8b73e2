/* Inside of comm: messages between ranks of one host through memory that they share (comm_shared.c). */
#ifndef TG_COMM_COMM_SHARED_H
#define TG_COMM_COMM_SHARED_H

#include "comm/comm_impl.h"

typedef struct tg_shared tg_shared;
/* index of size ranks of the host; create: this one makes the memory, before the others open it. */
teng_status tg_shared_open(const char *name, int index, int size, bool create, tg_shared **out);
void tg_shared_unlink(const char *name);
/* wait: until all that was given to send later has left. */
void tg_shared_close(tg_shared **shared, bool wait);

/* One message under way. */
typedef struct tg_shared_flow {
    int peer; /* index on the host */
    int tag;
    bool send;
    char *data;
    size_t bytes;
    size_t at; /* of the header and the data, done */
    bool done;
} tg_shared_flow;
/* Moves what can be moved now. An error when what came is not what is waited for: then got says of how many
 * bytes it is, and flows[*which] is the one. */
teng_status tg_shared_move(tg_shared *s, tg_shared_flow *flows, int n, bool *moved, int *which, size_t *got);
/* Until another rank has moved something since `seen` (tg_shared_seen before looking), or for some
 * milliseconds. */
unsigned tg_shared_seen(const tg_shared *s);
void tg_shared_sleep(tg_shared *s, unsigned seen, int milliseconds);
/* Takes data over, as send_later of tg_comm_ops: it leaves at once, or as the receiver takes it, by a thread
 * of its own. */
teng_status tg_shared_send_later(tg_shared *s, int peer, int tag, void *data, size_t bytes);

#endif
