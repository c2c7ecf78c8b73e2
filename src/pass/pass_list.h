/* The passes themselves; see the table in pass.c for what each does. */
#ifndef TG_PASS_PASS_LIST_H
#define TG_PASS_PASS_LIST_H

#include "pass/pass.h"

teng_status tg_pass_views(tg_graph *g, int *changed);
teng_status tg_pass_casts(tg_graph *g, int *changed);
teng_status tg_pass_cse(tg_graph *g, int *changed);
teng_status tg_pass_scales(tg_graph *g, int *changed);
teng_status tg_pass_dce(tg_graph *g, int *changed);
teng_status tg_pass_fuse(tg_graph *g, int *changed);

#endif
