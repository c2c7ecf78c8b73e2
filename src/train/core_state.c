/* Values of a core: initial, saved, restored. Model folders are load_weights.c's. */
#include "base/fail.h"
#include "base/rng.h"
#include "tensor/desc.h"
#include "train/core.h"

#include <string.h>

teng_status tg_core_init(tg_core *core, uint64_t seed)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(core->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        tg_store_entry *e = tg_store_find(core->store, params[i].name);
        if (!e || e->loaded) continue;
        float *host = core->dev->info.unified ? e->data : tg_alloc(tg_desc_bytes(&e->desc));
        if (!host) return TENG_MEMORY;
        tg_nn_init_param(&params[i], seed, host);
        teng_status status = TENG_OK;
        if (host != e->data) {
            status =
                tg_device_copy(core->dev, NULL, TG_COPY_TO_DEVICE, e->data, host, tg_desc_bytes(&e->desc));
            tg_free(host);
        }
        if (status != TENG_OK) return status;
        e->loaded = true;
    }
    return TENG_OK;
}

static teng_status load_one(tg_core *core, tg_store_entry *e, const tg_st_tensor *t)
{
    TG_TRY(tg_core_read_tensor(core, t, &e->desc, e->data));
    e->loaded = true;
    return TENG_OK;
}

/* Gradient accumulators are written before they are read in every step: they are not part of the state. */
static bool is_saved(const tg_store_entry *e)
{
    return e->kind == TG_STORE_PARAM || strncmp(e->name, "grad.", 5) != 0;
}

teng_status tg_core_items(const tg_core *core, tg_ckpt_item **items, size_t *n)
{
    const size_t count = tg_store_count(core->store);
    tg_spill *spill = NULL;
    const unsigned char *base = NULL;
    if (core->options.offload != TG_CFG_OFFLOAD_NONE) TG_TRY(tg_store_spill(core->store, &spill));
    if (spill) TG_TRY(tg_spill_map(spill, &base));
    const int spilled = spill ? tg_spill_count(spill) : 0;
    tg_ckpt_item *out = tg_calloc(count + (size_t)spilled + 1, sizeof *out);
    if (!out) return TENG_MEMORY;
    *n = 0;
    for (int i = 0; i < spilled; i++) {
        const tg_spill_entry *e = tg_spill_at(spill, i);
        out[(*n)++] =
            (tg_ckpt_item){.name = e->name, .desc = e->desc, .data = base + e->offset, .group = "optimizer"};
    }
    for (size_t i = 0; i < count; i++) {
        const tg_store_entry *e = tg_store_at(core->store, i);
        if (!is_saved(e)) continue;
        out[(*n)++] = (tg_ckpt_item){.name = e->name,
                                     .desc = e->desc,
                                     .data = e->data,
                                     .group = e->kind == TG_STORE_PARAM ? "model" : "optimizer"};
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
    tg_spill *spill = NULL;
    if (core->options.offload != TG_CFG_OFFLOAD_NONE && tg_store_spill(core->store, &spill) == TENG_OK &&
        spill)
        tg_spill_unmap(spill);
    return status;
}

static teng_status restore_to_disk(tg_core *core, const tg_st_tensor *t)
{
    tg_spill *spill;
    int index;
    TG_TRY(tg_store_spill(core->store, &spill));
    if (!spill) return tg_fail(TENG_STATE, "memory.offload needs a folder");
    TG_TRY(tg_spill_add(spill, t->name, &t->desc, &index));
    void *copy =
        tg_alloc_aligned(tg_desc_bytes(&t->desc)); /* the thread must not meet a fault of the mapped file */
    if (!copy) return TENG_MEMORY;
    teng_status status = tg_core_read_tensor(core, t, &t->desc, copy);
    if (status == TENG_OK) status = tg_spill_wait(spill, tg_spill_write(spill, index, copy));
    tg_free_aligned(copy);
    return status;
}

/* Optimizer states are added to the store as the file has them; the step's plan checks shapes when it binds.
 */
static teng_status restore_optimizer(tg_core *core, const tg_ckpt *ck)
{
    const size_t n = tg_ckpt_count(ck, "optimizer");
    for (size_t i = 0; i < n; i++) {
        const tg_st_tensor *t = tg_ckpt_at(ck, "optimizer", i);
        tg_store_entry *e;
        if (core->options.offload == TG_CFG_OFFLOAD_OPTIMIZER) {
            TG_TRY(restore_to_disk(core, t));
            continue;
        }
        TG_TRY(tg_store_add(core->store, TG_STORE_STATE, t->name, &t->desc, &e));
        TG_TRY(load_one(core, e, t));
    }
    return TENG_OK;
}

teng_status tg_core_restore(tg_core *core, const tg_ckpt *ck, const tg_source *source)
{
    for (size_t i = 0; i < tg_store_count(core->store); i++) {
        tg_store_entry *e = tg_store_at(core->store, i);
        if (e->kind != TG_STORE_PARAM) continue;
        const tg_st_tensor *t = tg_ckpt_find(ck, "model", e->name);
        if (!t) return tg_fail(TENG_FORMAT, "checkpoint %s holds no parameter %s", tg_ckpt_path(ck), e->name);
        TG_TRY(load_one(core, e, t));
    }
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
