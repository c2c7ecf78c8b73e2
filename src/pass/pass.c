/* The table of passes and the list language of graph.passes. */
#include "pass/pass.h"

#include "base/fail.h"
#include "pass/pass_list.h"

#include <string.h>

const tg_pass tg_passes[] = {
    {"views", "removes reshapes to the same shape and joins chains of reshapes", true, true, false,
     tg_pass_views},
    {"casts", "removes casts to the same dtype and widening casts that are narrowed back", true, true, false,
     tg_pass_casts},
    {"cse", "computes equal calls once", true, true, false, tg_pass_cse},
    {"scales", "joins neighbouring affine operators (rounds once less)", false, false, false, tg_pass_scales},
    {"dce", "drops nodes whose results nothing reads", true, true, false, tg_pass_dce},
    {"fuse", "makes one operator of neighbours that read the same memory", true, true, true, tg_pass_fuse},
    {NULL, NULL, false, false, false, NULL},
};

static int find_pass(const char *name)
{
    const char *names[16];
    int n = 0;
    for (; tg_passes[n].name; n++) {
        names[n] = tg_passes[n].name;
        if (strcmp(names[n], name) == 0) return n;
    }
    const char *near = tg_nearest_name(name, names, n);
    tg_fail(TENG_INVALID, "graph.passes: no pass is named \"%s\"%s%s%s", name,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    return -1;
}

static teng_status run_one(tg_graph *g, const tg_pass *pass, tg_strbuf *report, tg_pass_show *show,
                           void *user)
{
    const size_t before = g->nodes.len;
    int changed = 0;
    TG_TRY(pass->run(g, &changed));
    tg_graph_sweep(g);
    if (tg_graph_check(g) != TENG_OK) return tg_fail_context("after the pass %s", pass->name);
    if (report)
        tg_strbuf_printf(report, "%-8s %4d changed, %zu -> %zu nodes: %s\n", pass->name, changed, before,
                         g->nodes.len, pass->doc);
    if (show) show(user, pass->name, g);
    return TENG_OK;
}

static teng_status read_list(const char *const *names, size_t n, bool *on)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], "default") == 0) {
            for (int p = 0; tg_passes[p].name; p++)
                on[p] = on[p] || tg_passes[p].standard;
            continue;
        }
        const int p = find_pass(names[i] + (names[i][0] == '-'));
        if (p < 0) return TENG_INVALID;
        on[p] = names[i][0] != '-';
    }
    return TENG_OK;
}

teng_status tg_pass_run_part(tg_graph *g, bool late, const char *const *names, size_t n, tg_strbuf *report,
                             tg_pass_show *show, void *user)
{
    bool on[16] = {false};
    TG_TRY(read_list(names, n, on));
    if (show && !late) show(user, "traced", g);
    for (int p = 0; tg_passes[p].name; p++)
        if (on[p] && tg_passes[p].late == late) TG_TRY(run_one(g, &tg_passes[p], report, show, user));
    return TENG_OK;
}

teng_status tg_pass_run(tg_graph *g, const char *const *names, size_t n, tg_strbuf *report,
                        tg_pass_show *show, void *user)
{
    TG_TRY(tg_pass_run_part(g, false, names, n, report, show, user));
    return tg_pass_run_part(g, true, names, n, report, show, user);
}
