/*
 * What the memory of a plan is for, step by step: every byte that is live belongs to one kind. For people:
 * the listing by kind and by layer at the peak, and the picture over time.
 */
#ifndef TG_PLAN_PLAN_KINDS_H
#define TG_PLAN_PLAN_KINDS_H

#include "plan/plan.h"

typedef enum tg_memory_kind {
    TG_MEMORY_PARAMETERS,
    TG_MEMORY_OPTIMIZER, /* its states */
    TG_MEMORY_GRADIENTS, /* of parameters, accumulated ones too */
    TG_MEMORY_COPIES,    /* of parameters alone: in 16 bits, packed */
    TG_MEMORY_ACTIVATIONS,
    TG_MEMORY_RECOMPUTED,
    TG_MEMORY_BACKWARD, /* gradients of activations */
    TG_MEMORY_INPUTS,
    TG_MEMORY_WORKSPACE,
    TG_MEMORY_UNDER_WAY, /* what the other micro-batches of a pipeline left for their backward passes */
    TG_MEMORY_KINDS
} tg_memory_kind;
const char *tg_memory_kind_name(tg_memory_kind kind); /* "parameters", … */

typedef struct tg_memory_use {
    size_t bytes[TG_MEMORY_KINDS];
} tg_memory_use;
typedef struct tg_memory_timeline {
    size_t n;          /* steps */
    tg_memory_use *at; /* what is live while step k runs */
    int peak;          /* step */
} tg_memory_timeline;
teng_status tg_memory_timeline_make(const tg_plan *plan, tg_memory_timeline *out);
void tg_memory_timeline_free(tg_memory_timeline *t);

/* By kind at the peak, which node that is, and the activations by layer then. */
teng_status tg_plan_print_kinds(const tg_plan *plan, tg_strbuf *out);
/* {"parameters": bytes, …, "layers": {path: bytes}, "node": "where"}; NULL when memory is out. */
json_t *tg_plan_kinds_json(const tg_plan *plan);
/* Memory over the forecast time of a step (its steps when there is no forecast), stacked by kind, the peak
 * marked; a picture that stands alone. */
teng_status tg_plan_memory_svg(const tg_plan *plan, const char *title, tg_strbuf *out);

#endif
