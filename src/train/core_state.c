/* Values of a core: initial, loaded, saved, restored. */
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
    if (core->dev->info.unified) return tg_st_read(t, &e->desc, e->data);
    void *host = tg_alloc(tg_desc_bytes(&e->desc));
    if (!host) return TENG_MEMORY;
    teng_status status = tg_st_read(t, &e->desc, host);
    if (status == TENG_OK)
        status = tg_device_copy(core->dev, NULL, TG_COPY_TO_DEVICE, e->data, host, tg_desc_bytes(&e->desc));
    tg_free(host);
    return status;
}

/* ---- names in files of weights ---- */
typedef struct file_names {
    bool is_lm, tied;
    const char *backbone;
} file_names;

static file_names names_of(teng_cell *cell)
{
    const bool pending = teng_error_status() != TENG_OK;
    tg_lm_info info;
    if (tg_lm_get_info(cell, &info) == TENG_OK) return (file_names){true, info.tied, info.backbone};
    if (!pending) teng_error_clear();
    return (file_names){0};
}

/* Some files of language models leave the backbone's name out ("h.0.…" for "transformer.h.0.…"). */
static const tg_st_tensor *find_tensor(const tg_weights *weights, const file_names *names, const char *name)
{
    const tg_st_tensor *t = tg_weights_find(weights, name);
    if (t || !names->is_lm) return t;
    const size_t n = strlen(names->backbone);
    return strncmp(name, names->backbone, n) == 0 && name[n] == '.' ? tg_weights_find(weights, name + n + 1)
                                                                    : NULL;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A parameter, or what language models' files hold beside parameters: masks, frequencies, a tied head. */
static bool is_expected(const tg_core *core, const file_names *names, const char *name)
{
    if (tg_store_find(core->store, name)) return true;
    if (!names->is_lm) return false;
    if (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
        ends_with(name, ".rotary_emb.inv_freq") || (names->tied && strcmp(name, "lm_head.weight") == 0))
        return true;
    char *full = tg_asprintf("%s.%s", names->backbone, name);
    const bool found = full && tg_store_find(core->store, full);
    tg_free(full);
    return found;
}

teng_status tg_core_load_weights(tg_core *core, const tg_weights *weights, bool extra_ok)
{
    const file_names names = names_of(core->cell);
    for (size_t i = 0; i < tg_store_count(core->store); i++) {
        tg_store_entry *e = tg_store_at(core->store, i);
        if (e->kind != TG_STORE_PARAM) continue;
        const tg_st_tensor *t = find_tensor(weights, &names, e->name);
        if (!t) return tg_fail(TENG_FORMAT, "the weights hold no tensor %s", e->name);
        TG_TRY(load_one(core, e, t));
        e->loaded = true;
    }
    for (size_t i = 0; i < tg_weights_count(weights) && !extra_ok; i++) {
        const tg_st_tensor *t = tg_weights_at(weights, i);
        if (!is_expected(core, &names, t->name))
            return tg_fail(TENG_FORMAT, "%s: the model has no parameter %s", t->file, t->name);
    }
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
    tg_ckpt_item *out = tg_calloc(count + 1, sizeof *out);
    if (!out) return TENG_MEMORY;
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        const tg_store_entry *e = tg_store_at(core->store, i);
        if (!is_saved(e)) continue;
        out[(*n)++] =
            (tg_ckpt_item){e->name, e->desc, e->data, e->kind == TG_STORE_PARAM ? "model" : "optimizer"};
    }
    *items = out;
    return TENG_OK;
}

teng_status tg_core_state_json(const tg_core *core, const tg_source *source, json_t *state)
{
    const int failed =
        json_object_set_new(state, "applied_steps", json_integer(core->applied)) |
        json_object_set_new(state, "tokens", json_integer(core->tokens)) |
        json_object_set_new(state, "cursor", json_integer((json_int_t)source->cursor(source->user))) |
        json_object_set_new(state, "seed", json_integer((json_int_t)core->options.seed)) |
        json_object_set_new(state, "epoch", json_real(core->epoch));
    return failed ? tg_fail(TENG_MEMORY, "out of memory for the checkpoint's state") : TENG_OK;
}

/* Optimizer states are added to the store as the file has them; the step's plan checks shapes when it binds.
 */
static teng_status restore_optimizer(tg_core *core, const tg_ckpt *ck)
{
    const size_t n = tg_ckpt_count(ck, "optimizer");
    for (size_t i = 0; i < n; i++) {
        const tg_st_tensor *t = tg_ckpt_at(ck, "optimizer", i);
        tg_store_entry *e;
        TG_TRY(tg_store_add(core->store, TG_STORE_STATE, t->name, &t->desc, &e));
        TG_TRY(load_one(core, e, t));
        e->loaded = true;
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
        e->loaded = true;
    }
    TG_TRY(restore_optimizer(core, ck));
    const json_t *state = tg_ckpt_state(ck);
    int64_t cursor = 0, applied = 0, tokens = 0;
    double epoch = 0;
    TG_TRY(tg_json_get_int(state, "state.json", "cursor", true, &cursor));
    TG_TRY(tg_json_get_int(state, "state.json", "applied_steps", true, &applied));
    TG_TRY(tg_json_get_int(state, "state.json", "tokens", true, &tokens));
    TG_TRY(tg_json_get_real(state, "state.json", "epoch", true, &epoch));
    core->done = tg_ckpt_step(ck);
    core->applied = applied;
    core->tokens = tokens;
    core->epoch = epoch;
    return source ? source->seek(source->user, (uint64_t)cursor) : TENG_OK;
}
