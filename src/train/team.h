/*
 * The ranks of a run as the trainer sees them: who is first, which rows of a batch are whose, and agreement.
 * Whatever a rank decides by itself (a clock, a signal, a file, a failure) is agreed upon before anybody
 * acts, because ranks that do different things wait for each other for ever. NULL is a team of one.
 */
#ifndef TG_TRAIN_TEAM_H
#define TG_TRAIN_TEAM_H

#include "base/json.h"
#include "comm/comm.h"
#include "config/config.h"

typedef struct tg_team {
    tg_comm *comm;
    bool owns; /* comm is closed with the team */
    int rank, ranks;
    tg_mesh mesh; /* after bind */
} tg_team;

/* Joins the ranks that were started together: those of the world of this process, which is opened when there
 * is none. */
teng_status tg_team_open(tg_team **out);
void tg_team_close(tg_team **team);
/* The mesh of parallel.* for so many ranks; 0: as many as it makes. */
teng_status tg_team_mesh(const tg_config *cfg, int ranks, tg_mesh *out);
/* That mesh, with its groups, and parallel.timeout. The configuration has been checked. */
teng_status tg_team_bind(tg_team *team, const tg_config *cfg);

static inline bool tg_team_is_first(const tg_team *team)
{
    return !team || team->rank == 0;
}
static inline bool tg_team_is_many(const tg_team *team)
{
    return team && team->ranks > 1;
}
/* This rank's place among those that share the rows of a batch (data and expert axes), and their number. */
void tg_team_rows(const tg_team *team, int *index, int *count);
/* The same among those that share the positions (context axis). */
void tg_team_columns(const tg_team *team, int *index, int *count);

/* ---- collective: every rank calls ---- */
/* Fails on every rank when one has failed: with the message of the lowest such rank, which is named unless
 * all say the same. Takes the pending error, and leaves the common one. */
teng_status tg_team_agree(tg_team *team, teng_status status);
/* Refuses ranks that run another program; all have the same answer. */
teng_status tg_team_hello(tg_team *team);
/* Whether the last failure was agreed upon: then rank 0 alone tells it, and all may end in order. After any
 * other failure the other ranks know nothing of it and may be waiting. */
bool tg_team_agreed(const tg_team *team);
/* values[n] become the largest of all ranks. */
teng_status tg_team_max(tg_team *team, int32_t *values, int n);
/* Sums among the ranks that have different labels (data, expert and context axes). */
teng_status tg_team_sum_labels(tg_team *team, int64_t *values, int n);
/* The same of doubles, among the data ranks. */
teng_status tg_team_sum(tg_team *team, double *values, int n);
/* The texts of all ranks, in their order, each ended by a zero byte; heap. */
teng_status tg_team_gather_text(tg_team *team, const char *text, char **all);
/* Rank 0's text on every rank; heap. */
teng_status tg_team_first_text(tg_team *team, const char *text, char **out);

/* ---- what must be the same (team_check.c) ---- */
/* Refuses a rank whose instruction set or configuration is another than rank 0's: names key, values and rank.
 */
teng_status tg_team_same_config(tg_team *team, const tg_config *cfg);
/* The same for facts {name: text or number} about what was opened: data. remedy ends the message. */
teng_status tg_team_same_facts(tg_team *team, const json_t *facts, const char *remedy);

/* Hash of something that several ranks hold alike: same name and same box, same bits. */
typedef struct tg_team_copy {
    const char *name;
    uint64_t box, bits; /* hashes */
} tg_team_copy;
/* Refuses when two ranks hold different bits of one tensor: names the first in the order of the list, and the
 * ranks. when: "before the first step". */
teng_status tg_team_same_copies(tg_team *team, const tg_team_copy *copies, size_t n, const char *when);

#endif
