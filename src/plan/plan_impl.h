/* What the files of the planner share: who lies in whose buffer and for how long. */
#ifndef TG_PLAN_PLAN_IMPL_H
#define TG_PLAN_PLAN_IMPL_H

#include "plan/plan.h"

struct tg_plan_builder {
    tg_plan *plan;
    int *root;      /* by value id: the value whose buffer it shares; itself when it has its own */
    int *last_use;  /* by root id */
    int *first_use; /* by root id: where it is written */
    bool *pinned;   /* by root id: input, output or stored: never taken over */
    int *stays;     /* by root id: 1 + its first stay, 0: it is in memory throughout */
    size_t *offset; /* by value id: where it begins in the root's buffer */
};

static inline int tg_plan_root(const struct tg_plan_builder *b, int id)
{
    while (b->root[id] != id)
        id = b->root[id];
    return id;
}

/* plan_overlap.c: which collectives run beside computation, and until when; holds their operands so long. */
teng_status tg_plan_overlap(struct tg_plan_builder *b);
/* plan_stays.c: which values lie in a file between uses, when they come and when they go. After lifetimes,
 * take-over and costs are known. */
teng_status tg_plan_find_stays(struct tg_plan_builder *b);
teng_status tg_plan_place_stays(struct tg_plan_builder *b, int value); /* their buffers */
teng_status tg_plan_list_moves(tg_plan *plan);

#endif
