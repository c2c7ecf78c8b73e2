/* Values of a core: initial, saved, restored. Model folders are load_weights.c's. */
#include "base/fail.h"
#include "base/rng.h"
#include "tensor/desc.h"
#include "train/core.h"

#include <string.h>

/* A parameter is drawn whole, as on one rank, and cut. */
static teng_status init_param(tg_core *core, const tg_param_info *param, uint64_t seed, tg_store_entry *e,
                              const tg_core_place *place)
{
    const tg_box whole = tg_box_whole(&place->whole);
    const size_t bytes = tg_desc_bytes(&e->desc), size = (size_t)teng_dtype_size(e->desc.dtype);
    if (core->dev->info.unified && tg_box_equal(&place->box, &whole)) {
        tg_nn_init_param(param, seed, e->data);
        return TENG_OK;
    }
    float *host = tg_alloc(tg_desc_bytes(&place->whole)), *part = tg_alloc(bytes + 1);
    teng_status status = host && part ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) {
        tg_nn_init_param(param, seed, host);
        tg_box_copy(size, &whole, host, &place->box, part);
        status = tg_device_copy(core->dev, NULL, TG_COPY_TO_DEVICE, e->data, part, bytes);
    }
    tg_free(host);
    tg_free(part);
    return status;
}

teng_status tg_core_init(tg_core *core, uint64_t seed)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(core->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        tg_store_entry *e;
        tg_core_place place;
        if (!tg_core_param(core, &params[i], &e, &place) || e->loaded) continue;
        TG_TRY(init_param(core, &params[i], seed, e, &place));
        tg_store_rest(e);
        e->loaded = true;
    }
    return TENG_OK;
}

/* Gradient accumulators are written before they are read in every step: they are not part of the state. */
static bool is_saved(const tg_store_entry *e)
{
    return e->kind == TG_STORE_PARAM || strncmp(e->name, "grad.", 5) != 0;
}

/* Adds a tensor of `local` shape; of many ranks only when this one stands for it, as a part. */
static void add_item(const tg_core *core, tg_ckpt_item item, tg_ckpt_part *parts, tg_ckpt_item *items,
                     size_t *n)
{
    tg_core_place place;
    if (!tg_core_find_place(core, item.name, &item.desc, &place) || !place.owner) return;
    const tg_box whole = tg_box_whole(&place.whole);
    if (!tg_box_equal(&place.box, &whole)) {
        if (tg_box_numel(&place.box) == 0) return;
        parts[*n] = (tg_ckpt_part){place.whole, place.box};
        item.part = &parts[*n];
    }
    items[(*n)++] = item;
}

/* Through the file's thread, which says what is wrong with a disk. */
static teng_status fetch_from_disk(void *user, const tg_ckpt_item *item, void *to)
{
    tg_store *store = user;
    tg_spill *spill;
    const tg_store_entry *e = tg_store_find(store, item->name);
    TG_TRY(tg_store_spill(store, &spill));
    return tg_spill_wait(spill, tg_spill_read(spill, e->name, e->offset, tg_desc_bytes(&e->desc), to));
}

teng_status tg_core_items(const tg_core *core, tg_ckpt_item **items, size_t *n)
{
    const size_t count = tg_store_count(core->store), most = count + 1;
    tg_spill *spill = NULL;
    if (core->options.offload) TG_TRY(tg_store_spill(core->store, &spill));
    if (spill) TG_TRY(tg_spill_wait_all(spill)); /* after a failure nothing is saved */
    /* One piece of memory: the caller frees it as one. */
    tg_ckpt_item *out = tg_calloc(most, sizeof(tg_ckpt_item) + (core->layout ? sizeof(tg_ckpt_part) : 0));
    if (!out) return TENG_MEMORY;
    tg_ckpt_part *parts = (tg_ckpt_part *)(void *)(out + most);
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        const tg_store_entry *e = tg_store_at(core->store, i);
        tg_ckpt_item item = {.name = e->name,
                             .desc = e->desc,
                             .data = e->on_disk ? NULL : e->data,
                             .group = e->kind == TG_STORE_PARAM ? "model" : "optimizer"};
        if (e->on_disk) {
            item.fetch = fetch_from_disk;
            item.user = core->store;
        }
        if (is_saved(e)) add_item(core, item, parts, out, n);
    }
    *items = out;
    return TENG_OK;
}

teng_status tg_core_state_json(const tg_core *core, json_t *state)
{
    const int failed = json_object_set_new(state, "applied_steps", json_integer(core->applied)) |
                       json_object_set_new(state, "tokens", json_integer(core->tokens)) |
                       json_object_set_new(state, "cursor", json_integer((json_int_t)core->cursor)) |
                       json_object_set_new(state, "seed", json_integer((json_int_t)core->options.seed)) |
                       json_object_set_new(state, "epoch", json_real(core->epoch));
    if (failed) return tg_fail(TENG_MEMORY, "out of memory for the checkpoint's state");
    return core->options.loss_scale.mode == TG_SCALE_NONE ? TENG_OK : tg_loss_scale_save(&core->scale, state);
}

teng_status tg_core_submit(const tg_core *core, tg_ckpt_writer *writer, json_t *state, bool last)
{
    tg_ckpt_item *items = NULL;
    size_t n = 0;
    teng_status status = tg_core_items(core, &items, &n);
    if (status == TENG_OK) status = tg_core_state_json(core, state);
    if (status == TENG_OK && last) tg_ckpt_writer_write(writer, core->done, items, n, state);
    if (status == TENG_OK && !last) status = tg_ckpt_writer_submit(writer, core->done, items, n, state);
    tg_free(items);
    return status;
}

void tg_core_prepare_saves(const tg_core *core, tg_ckpt_writer *writer)
{
    tg_ckpt_item *items = NULL;
    size_t n = 0;
    if (tg_core_items(core, &items, &n) == TENG_OK)
        tg_ckpt_writer_prepare(writer, items, n);
    else
        teng_error_clear(); /* told by the save itself */
    tg_free(items);
}

/* Optimizer states are added to the store as the file has them, or this rank's part of them; the step's plan
 * checks shapes when it binds. */
static teng_status restore_optimizer(tg_core *core, const tg_ckpt *ck)
{
    const size_t n = tg_ckpt_count(ck, "optimizer");
    for (size_t i = 0; i < n; i++) {
        const tg_st_tensor *t = tg_ckpt_at(ck, "optimizer", i);
        tg_store_entry *e;
        tg_core_place place;
        if (!tg_core_find_place(core, t->name, &t->desc, &place)) continue;
        const teng_desc local = tg_box_desc(&place.box, &place.whole);
        TG_TRY(tg_core_add(core, TG_STORE_STATE, t->name, &local, &e));
        TG_TRY(tg_core_read_box(core, t, &place.whole, &place.box, e->data));
        tg_store_rest(e);
        e->loaded = true;
    }
    return TENG_OK;
}

static teng_status restore_params(tg_core *core, const tg_ckpt *ck)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(core->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        tg_store_entry *e;
        tg_core_place place;
        if (!tg_core_param(core, &params[i], &e, &place)) continue;
        const tg_st_tensor *t = tg_ckpt_find(ck, "model", e->name);
        if (!t) return tg_fail(TENG_FORMAT, "checkpoint %s holds no parameter %s", tg_ckpt_path(ck), e->name);
        TG_TRY(tg_core_read_box(core, t, &place.whole, &place.box, e->data));
        tg_store_rest(e);
        e->loaded = true;
    }
    return TENG_OK;
}

teng_status tg_core_restore(tg_core *core, const tg_ckpt *ck, const tg_source *source)
{
    TG_TRY(restore_params(core, ck));
    TG_TRY(restore_optimizer(core, ck));
    const json_t *state = tg_ckpt_state(ck);
    int64_t cursor = 0, applied = 0, tokens = 0;
    double epoch = 0;
    TG_TRY(tg_json_get_int(state, "state.json", "cursor", true, &cursor));
    TG_TRY(tg_json_get_int(state, "state.json", "applied_steps", true, &applied));
    TG_TRY(tg_json_get_int(state, "state.json", "tokens", true, &tokens));
    TG_TRY(tg_json_get_real(state, "state.json", "epoch", true, &epoch));
    if (core->options.loss_scale.mode != TG_SCALE_NONE)
        TG_TRY(tg_loss_scale_load(&core->scale, state, "state.json"));
    core->done = tg_ckpt_step(ck);
    core->applied = applied;
    core->tokens = tokens;
    core->epoch = epoch;
    core->cursor = (uint64_t)cursor;
    return source ? source->seek(source->user, core->cursor) : TENG_OK;
}
