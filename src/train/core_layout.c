/*
 * What this rank holds of a model: its part of each parameter and state, found from the layout of the step,
 * and which rank stands for parts that several hold. On one rank everything is whole.
 */
#include "base/fail.h"
#include "base/strmap.h"
#include "tensor/desc.h"
#include "train/core.h"

#include <string.h>

enum { NOWHERE = INT32_MAX };

static int own_stage(const tg_core *core)
{
    int coord[TG_AXES];
    tg_mesh_coords(&core->team->mesh, core->team->rank, coord);
    return coord[TG_AXIS_PIPELINE];
}

/* The first stage that holds each parameter: a tied table is on two of them. */
static teng_status find_stages(tg_core *core, const tg_param_info *params, size_t n)
{
    core->stage = tg_alloc(sizeof *core->stage * (n + 1));
    if (!core->stage) return TENG_MEMORY;
    for (size_t i = 0; i < n; i++)
        core->stage[i] = tg_parallel_entry_find(core->layout, params[i].name) ? own_stage(core) : NOWHERE;
    tg_group *stages = tg_comm_along(core->team->comm, 1u << TG_AXIS_PIPELINE);
    if (!stages) return teng_error_status();
    TG_TRY(tg_comm_all_reduce(stages, TG_REDUCE_MIN, TENG_I32, core->stage, core->stage, (int64_t)n));
    for (size_t i = 0; i < n; i++)
        if (core->stage[i] == NOWHERE)
            core->stage[i] = 0; /* in no graph: a part that the forward leaves out */
    return TENG_OK;
}

teng_status tg_core_lay_out(tg_core *core, const tg_step_feed *shapes)
{
    const tg_param_info *params;
    size_t n;
    if (!tg_team_is_many(core->team)) return TENG_OK;
    TG_TRY(tg_step_layout(core->step, shapes, &core->layout));
    TG_TRY(tg_nn_params(core->cell, &params, &n));
    TG_TRY(find_stages(core, params, n));
    for (size_t i = 0; i < n; i++) {
        tg_core_place place;
        tg_store_entry *entry;
        if (!tg_core_find_place(core, params[i].name, &params[i].desc, &place)) continue;
        const teng_desc local = tg_box_desc(&place.box, &place.whole);
        TG_TRY(tg_core_add(core, TG_STORE_PARAM, params[i].name, &local, &entry));
    }
    return TENG_OK;
}

/* The number of the parameter that a state belongs to: "adamw.m.model.norm.weight" ends in its name. */
static bool param_of(const tg_core *core, const char *name, size_t *index)
{
    const tg_param_info *params;
    size_t n;
    if (tg_nn_params(core->cell, &params, &n) != TENG_OK) return false;
    for (const char *at = name; at; at = strchr(at, '.')) {
        at += at != name;
        for (size_t i = 0; i < n; i++)
            if (strcmp(params[i].name, at) == 0) {
                *index = i;
                return true;
            }
    }
    return false;
}

bool tg_core_find_place(const tg_core *core, const char *name, const teng_desc *whole, tg_core_place *out)
{
    *out = (tg_core_place){.whole = *whole, .box = tg_box_whole(whole), .owner = true};
    if (!core->layout) return true;
    size_t param;
    const bool known = param_of(core, name, &param);
    const tg_parallel_entry *e = tg_parallel_entry_find(core->layout, name);
    const int stage = own_stage(core), first = known ? core->stage[param] : 0;
    tg_placement at = tg_mesh_replicated(); /* in no graph: every rank of the first stage has it whole */
    if (!e && stage != first) return false;
    if (e) {
        out->whole = e->whole;
        at = e->placement;
        tg_mesh_box(&core->team->mesh, core->team->rank, &e->whole, &at, &out->box);
    }
    out->owner = stage == first && tg_mesh_owner(&core->team->mesh, core->team->rank, &at);
    return true;
}

bool tg_core_param(const tg_core *core, const tg_param_info *param, tg_store_entry **entry,
                   tg_core_place *place)
{
    *entry = tg_store_find(core->store, param->name);
    return *entry && tg_core_find_place(core, param->name, &param->desc, place);
}

/* ---- copies ---- */
static uint64_t hash_box(const tg_box *box)
{
    uint64_t h = (uint64_t)box->ndim;
    for (int d = 0; d < box->ndim; d++) {
        const int64_t v[] = {box->begin[d], box->size[d], box->runs[d],
                             box->runs[d] > 1 ? box->stride[d] : 0};
        h = tg_hash64(v, sizeof v, h);
    }
    return h;
}

teng_status tg_core_same_copies(const tg_core *core, const char *when)
{
    if (!tg_team_is_many(core->team)) return TENG_OK;
    size_t n = 0, count = tg_store_count(core->store);
    tg_team_copy *copies = tg_calloc(count + 1, sizeof *copies);
    for (size_t i = 0; copies && i < count; i++) {
        const tg_store_entry *e = tg_store_at(core->store, i);
        tg_core_place place;
        const bool sum = e->kind == TG_STORE_STATE && strncmp(e->name, "grad.", 5) == 0;
        if (sum || !tg_core_find_place(core, e->name, &e->desc, &place)) continue;
        copies[n++] = (tg_team_copy){.name = e->name,
                                     .box = hash_box(&place.box),
                                     .bits = tg_hash64(e->data, tg_desc_bytes(&e->desc), 0)};
        tg_store_rest(e);
    }
    teng_status status = tg_team_agree(core->team, copies ? TENG_OK : TENG_MEMORY);
    if (status == TENG_OK) status = tg_team_same_copies(core->team, copies, n, when);
    tg_free(copies);
    return status;
}
