/*
 * Passes: rewrites of a graph that keep its meaning, each by name in one table. The standard list only holds
 * passes that change no bit of any result; others must be asked for by name.
 */
#ifndef TG_PASS_PASS_H
#define TG_PASS_PASS_H

#include "graph/graph.h"

typedef struct tg_pass {
    const char *name;
    const char *doc;
    bool standard; /* part of "default" */
    bool exact;    /* keeps every bit */
    bool late;     /* runs on the graph of one plan: after recompute, not on what a pipeline
                      cuts */
    teng_status (*run)(tg_graph *g, int *changed); /* *changed: nodes removed or rewritten */
} tg_pass;

extern const tg_pass tg_passes[]; /* in the order they run; ends with .name == NULL */

/* Runs the named list as graph.passes states it: a name runs that pass, "default" stands for the standard
 * list,
 * "-name" takes a pass out. The graph is checked after each. A line for each pass is appended to report (may
 * be NULL): "dce: 3 nodes". show is called before the first and after each pass when it is not NULL. */
typedef void tg_pass_show(void *user, const char *pass, const tg_graph *g);
teng_status tg_pass_run(tg_graph *g, const char *const *names, size_t n, tg_strbuf *report,
                        tg_pass_show *show, void *user);
/* The same for those of the list that are late, or those that are not. */
teng_status tg_pass_run_part(tg_graph *g, bool late, const char *const *names, size_t n, tg_strbuf *report,
                             tg_pass_show *show, void *user);

#endif
