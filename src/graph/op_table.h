/*
 * The table of operators by name: the op room registers the built-in ones (ops.def), plugins add theirs. Also
 * the attribute and placement helpers that work on any operator through its tables.
 */
#ifndef TG_GRAPH_OP_TABLE_H
#define TG_GRAPH_OP_TABLE_H

#include "base/strbuf.h"
#include "teng/operator.h"

/* Checks the spec (no NULL without a reason, fields inside attr_size, …) and adds it. A name twice is an
 * error unless it is the same spec. cases may be NULL for built-in operators (tests link theirs). */
teng_status tg_op_register(const teng_op_spec *op, const teng_op_cases *cases);
/* Registers n operators that are known to be in order: called by the op room's table. */
const teng_op_spec *tg_op_find(const char *name); /* NULL and an error that names the nearest */
int tg_op_count(void);
const teng_op_spec *tg_op_at(int i);
const teng_op_cases *tg_op_cases_at(int i); /* NULL when none came with it */
teng_status tg_op_check(const teng_op_spec *op);

/* Runs infer with checks of counts; out[] must hold TENG_MAX_OUT. */
teng_status tg_op_infer(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                        teng_desc *out, int *n_out);
/* Every value of a graph keeps this: 0 to 8 dimensions, none negative, at most TG_VALUE_MAX bytes, so that
 * rules may multiply and add sizes without overflow. */
#define TG_VALUE_MAX ((int64_t)1 << 50)
teng_status tg_op_check_size(const teng_desc *desc, const char *what);
void tg_op_cost(const teng_op_call *call, teng_cost *out);
/* Roofline (Williams, Waterman, Patterson 2009): the longer of computing and moving, by these rates. */
double tg_cost_seconds(const teng_cost *cost, double flops_per_s, double bytes_per_s);

/* "{axis=-1, eps=1e-06}" and back; equality of two attribute structs. */
void tg_attr_print(const teng_op_spec *op, const void *attr, tg_strbuf *out);
teng_status tg_attr_parse(const teng_op_spec *op, const char *text, const char **end, void *attr);
bool tg_attr_equal(const teng_op_spec *op, const void *a, const void *b);

/* Placement rules of a call, the replicated one first. */
typedef struct tg_place_rule {
    teng_place *in, *out;
} tg_place_rule;
struct teng_place_rules {
    int n_in, n_out;
    int n, cap;
    tg_place_rule *rules;
    bool failed;
};
teng_status tg_place_rules_get(const teng_op_call *call, teng_place_rules *out);
void tg_place_rules_free(teng_place_rules *rules);

/* Picks the first kernel of `device` that accepts, from sets the isa limit allows (a TG_CPU_… level). Reasons
 * of refused ones are appended to why when it is not NULL. NULL and an error with all reasons when none
 * accepts. */
const teng_kernel *tg_kernel_select(const teng_op_call *call, const char *device, int isa, tg_strbuf *why);

#endif
