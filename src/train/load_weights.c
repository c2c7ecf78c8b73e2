/*
 * Weights as other programs write them, into the parameters of a core and out of it. A model is matched with
 * a file as a whole before anything is copied, so that one error names all that is missing or left over. What
 * names mean is said by the family (tg_lm_info); other models' names must match exactly.
 */
#include "base/fail.h"
#include "base/strmap.h"
#include "ckpt/hf_folder.h"
#include "tensor/desc.h"
#include "train/core.h"

#include <string.h>

#define LISTED 8 /* names in an error */

typedef struct name_list {
    tg_strbuf text;
    int64_t n;
} name_list;

typedef struct placement { /* a tensor of the file and where it goes */
    const tg_param_info *param;
    const tg_st_tensor *tensor;
    teng_desc want;
    int64_t offset; /* of its first element in the parameter */
} placement;

typedef struct matching {
    teng_cell *cell;
    tg_core *core; /* to copy into */
    const tg_weights *weights;
    bool is_lm;
    tg_lm_info info;
    TG_VEC(placement) placed;
    tg_strmap *taken; /* names of the file's tensors that have found their place */
    name_list missing, extra;
} matching;

static void add_name(name_list *list, const char *name)
{
    if (list->n++ < LISTED) tg_strbuf_printf(&list->text, "%s%.200s", list->n > 1 ? ", " : "", name);
}

static const char *list_text(name_list *list)
{
    if (list->n > LISTED) tg_strbuf_printf(&list->text, " and %lld more", (long long)list->n - LISTED);
    return tg_strbuf_str(&list->text);
}

static teng_status place(matching *m, const tg_param_info *param, const tg_st_tensor *t,
                         const teng_desc *want, int64_t offset)
{
    const placement p = {param, t, *want, offset};
    return tg_vec_push(&m->placed, p) && tg_strmap_set(m->taken, t->name, strlen(t->name), 0, NULL)
               ? TENG_OK
               : TENG_MEMORY;
}

/* "h.0.ln_1.weight" for "transformer.h.0.ln_1.weight", as a file of the backbone alone has it; else NULL. */
static const char *without_backbone(const matching *m, const char *name)
{
    if (!m->is_lm) return NULL;
    const size_t n = strlen(m->info.backbone);
    return strncmp(name, m->info.backbone, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

static bool is_tied_table(const matching *m, const char *name)
{
    return m->is_lm && m->info.tied && strcmp(name, m->info.embedding) == 0;
}

/* The tensor of that name, or of that name without the backbone's; NULL when there is none. */
static teng_status find(const matching *m, const char *name, const tg_st_tensor **out)
{
    const char *brief = without_backbone(m, name);
    const tg_st_tensor *t = tg_weights_find(m->weights, name);
    const tg_st_tensor *other = brief ? tg_weights_find(m->weights, brief) : NULL;
    if (t && other)
        return tg_fail(TENG_FORMAT, "%s: %s and %s are the same parameter; the file must hold one of them",
                       t->file, t->name, other->name);
    *out = t ? t : other;
    return TENG_OK;
}

/* A parameter that files keep in other tensors than its own. */
static teng_status match_parts(matching *m, const tg_param_info *param, const tg_lm_parts *parts)
{
    for (size_t i = 0; i < parts->len; i++) {
        const tg_lm_part *part = &parts->data[i];
        const tg_st_tensor *t;
        TG_TRY(find(m, part->name, &t));
        if (t)
            TG_TRY(place(m, param, t, &part->desc, part->offset));
        else
            add_name(&m->missing, part->name);
    }
    return TENG_OK;
}

static teng_status match_param(matching *m, const tg_param_info *param)
{
    const tg_st_tensor *t;
    TG_TRY(find(m, param->name, &t));
    if (!t && is_tied_table(m, param->name)) t = tg_weights_find(m->weights, "lm_head.weight");
    if (t) return place(m, param, t, &param->desc, 0);
    if (!m->is_lm) {
        add_name(&m->missing, param->name);
        return TENG_OK;
    }
    tg_lm_parts parts = {0};
    teng_status status = tg_lm_file_parts(m->cell, param, &parts);
    if (status == TENG_OK) status = match_parts(m, param, &parts);
    tg_lm_parts_free(&parts);
    return status;
}

/* A tied head that the file holds all the same: it must say what the table says. */
static teng_status match_tied_head(matching *m)
{
    const tg_st_tensor *head = tg_weights_find(m->weights, "lm_head.weight"), *table = NULL;
    if (!m->is_lm || !m->info.tied || !head) return TENG_OK;
    for (size_t i = 0; i < m->placed.len; i++)
        if (strcmp(m->placed.data[i].param->name, m->info.embedding) == 0) table = m->placed.data[i].tensor;
    if (!table || table == head) return TENG_OK;
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    if (!tg_desc_equal(&head->desc, &table->desc))
        return tg_fail(TENG_FORMAT,
                       "%s: lm_head.weight is %s and %s is %s, but tie_word_embeddings makes them one",
                       head->file, tg_desc_text(a, &head->desc), table->name, tg_desc_text(b, &table->desc));
    if (!head->data || !table->data) /* a checkpoint of teng's own, which has no second table */
        return tg_fail(TENG_FORMAT, "%s: lm_head.weight in pieces beside a tied table", head->file);
    if (memcmp(head->data, table->data, tg_desc_bytes(&head->desc)) != 0) {
        tg_diff diff;
        tg_compare(head->desc.dtype, head->data, table->desc.dtype, table->data, tg_desc_numel(&head->desc),
                   &diff);
        return tg_fail(
            TENG_FORMAT,
            "%s: lm_head.weight and %s differ in %lld of %lld values, but tie_word_embeddings makes "
            "them one; set it false in config.json if both count",
            head->file, table->name, (long long)diff.unequal, (long long)diff.count);
    }
    return tg_strmap_set(m->taken, head->name, strlen(head->name), 0, NULL) ? TENG_OK : TENG_MEMORY;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void find_extra(matching *m)
{
    for (size_t i = 0; i < tg_weights_count(m->weights); i++) {
        const tg_st_tensor *t = tg_weights_at(m->weights, i);
        int64_t unused;
        bool known = tg_strmap_get(m->taken, t->name, strlen(t->name), &unused);
        for (size_t x = 0; m->is_lm && m->info.extra[x] && !known; x++)
            known = ends_with(t->name, m->info.extra[x]);
        if (!known) add_name(&m->extra, t->name);
    }
}

static teng_status match(matching *m)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(m->cell, &params, &n));
    for (size_t i = 0; i < n; i++)
        TG_TRY(match_param(m, &params[i]));
    TG_TRY(match_tied_head(m));
    find_extra(m);
    if (!m->missing.n && !m->extra.n) return TENG_OK;
    const char *file = tg_weights_count(m->weights) ? tg_weights_at(m->weights, 0)->file : "the weights";
    return tg_fail(TENG_FORMAT, "%s: the tensors are not those of the model%s%s%s%s", file,
                   m->missing.n ? "; missing: " : "", list_text(&m->missing),
                   m->extra.n ? "; unexpected: " : "", list_text(&m->extra));
}

teng_status tg_core_read_box(tg_core *core, const tg_st_tensor *t, const teng_desc *whole, const tg_box *box,
                             void *to)
{
    if (core->dev->info.unified) return tg_st_read_box(t, whole, box, to);
    const size_t bytes = (size_t)tg_box_numel(box) * (size_t)teng_dtype_size(whole->dtype);
    void *host = tg_alloc(bytes + 1);
    if (!host) return TENG_MEMORY;
    teng_status status = tg_st_read_box(t, whole, box, host);
    if (status == TENG_OK) status = tg_device_copy(core->dev, NULL, TG_COPY_TO_DEVICE, to, host, bytes);
    tg_free(host);
    return status;
}

/* A tensor that is a part of a parameter, of which this rank holds another part: what both have. */
static teng_status copy_common(matching *m, const placement *p, tg_store_entry *e, const tg_core_place *at)
{
    tg_box from;
    const tg_box all = tg_box_whole(&p->want);
    const size_t size = (size_t)teng_dtype_size(e->desc.dtype), bytes = tg_desc_bytes(&e->desc);
    if (!tg_box_of_range(&at->whole, p->offset, tg_desc_numel(&p->want), &from))
        return tg_fail(TENG_UNSUPPORTED, "%s: tensor %s is no block of parameter %s, which is split",
                       p->tensor->file, p->tensor->name, e->name);
    void *whole = tg_alloc(tg_desc_bytes(&p->want) + 1), *own = tg_alloc(bytes + 1);
    teng_status status = whole && own ? tg_st_read_box(p->tensor, &p->want, &all, whole) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_device_copy(m->core->dev, NULL, TG_COPY_TO_HOST, own, e->data, bytes);
    if (status == TENG_OK) {
        tg_box_copy(size, &from, whole, &at->box, own);
        status = tg_device_copy(m->core->dev, NULL, TG_COPY_TO_DEVICE, e->data, own, bytes);
    }
    tg_free(whole);
    tg_free(own);
    return status;
}

static teng_status copy(matching *m)
{
    for (size_t i = 0; i < m->placed.len; i++) {
        const placement *p = &m->placed.data[i];
        tg_store_entry *e;
        tg_core_place at;
        if (!tg_core_param(m->core, p->param, &e, &at)) continue; /* on other ranks */
        const tg_box all = tg_box_whole(&at.whole), part = tg_box_whole(&p->want);
        const bool is_whole = tg_desc_equal(&p->want, &at.whole);
        char *to = (char *)e->data + p->offset * teng_dtype_size(e->desc.dtype);
        if (is_whole)
            TG_TRY(tg_core_read_box(m->core, p->tensor, &p->want, &at.box, to));
        else if (tg_box_equal(&at.box, &all))
            TG_TRY(tg_core_read_box(m->core, p->tensor, &p->want, &part, to));
        else
            TG_TRY(copy_common(m, p, e, &at));
        tg_store_rest(e);
        e->loaded = true;
    }
    return TENG_OK;
}

/* Whether the cell is a language model; leaves no error behind. */
static bool find_info(teng_cell *cell, tg_lm_info *info)
{
    tg_error pending;
    tg_error_take(&pending);
    const bool is_lm = tg_lm_get_info(cell, info) == TENG_OK;
    teng_error_clear();
    if (pending.status != TENG_OK) tg_error_give(&pending);
    return is_lm;
}

static teng_status begin(matching *m, teng_cell *cell, const tg_weights *weights)
{
    *m = (matching){.cell = cell, .weights = weights};
    m->is_lm = find_info(cell, &m->info);
    m->taken = tg_strmap_create();
    return m->taken ? match(m) : TENG_MEMORY;
}

static void end(matching *m)
{
    tg_strbuf_free(&m->missing.text);
    tg_strbuf_free(&m->extra.text);
    tg_strmap_destroy(&m->taken);
    tg_vec_free(&m->placed);
}

teng_status tg_core_load_weights(tg_core *core, const tg_weights *weights)
{
    matching m;
    teng_status status = begin(&m, core->cell, weights);
    m.core = core;
    if (status == TENG_OK) status = copy(&m);
    end(&m);
    return status;
}

teng_status tg_core_load_path(tg_core *core, const char *path)
{
    tg_weights *weights;
    TG_TRY(tg_weights_open(path, &weights));
    const teng_status status = tg_core_load_weights(core, weights);
    tg_weights_close(&weights);
    return status;
}

/* ---- out ---- */
static teng_status add_items(tg_core *core, const tg_store_entry *e, bool is_lm, tg_arena *arena,
                             tg_folder_items *out)
{
    const tg_param_info param = {.name = e->name, .desc = e->desc};
    tg_lm_parts parts = {0};
    teng_status status = is_lm ? tg_lm_file_parts(core->cell, &param, &parts) : TENG_OK;
    for (size_t i = 0; i < (is_lm ? parts.len : 1) && status == TENG_OK; i++) {
        tg_ckpt_item item = {.name = e->name, .desc = e->desc, .data = e->data, .group = "model"};
        if (is_lm) {
            const tg_lm_part *part = &parts.data[i];
            item.name = tg_arena_strdup(arena, part->name);
            item.desc = part->desc;
            item.data = (const char *)e->data + part->offset * teng_dtype_size(e->desc.dtype);
        }
        if (!item.name || !tg_vec_push(out, item)) status = TENG_MEMORY;
    }
    tg_lm_parts_free(&parts);
    return status;
}

teng_status tg_core_folder_items(tg_core *core, tg_arena *arena, tg_folder_items *out)
{
    tg_lm_info info;
    const bool is_lm = find_info(core->cell, &info);
    for (size_t i = 0; i < tg_store_count(core->store); i++) {
        const tg_store_entry *e = tg_store_at(core->store, i);
        if (e->kind == TG_STORE_PARAM) TG_TRY(add_items(core, e, is_lm, arena, out));
    }
    return TENG_OK;
}

/* Settings of generation where the folder that is continued has none: the tokenizer's end token. NULL: it has
 * some. */
static teng_status generation_of(const tg_tokenizer *tokenizer, const char *tokenizer_dir, json_t **out)
{
    *out = NULL;
    if (tokenizer_dir) TG_TRY(tg_hf_read_generation_config(tokenizer_dir, out));
    if (*out) {
        json_decref(*out);
        *out = NULL;
        return TENG_OK;
    }
    const int64_t eos = tokenizer ? tg_tokenizer_eos(tokenizer) : -1;
    *out = eos >= 0 ? json_pack("{s:I}", "eos_token_id", (json_int_t)eos) : json_object();
    return *out ? TENG_OK : tg_fail(TENG_MEMORY, "generation_config.json: out of memory");
}

static teng_status save_items(tg_core *core, const char *dir, const tg_folder_items *items,
                              const tg_tokenizer *tokenizer, const char *tokenizer_dir)
{
    const char *text = teng_lm_config(core->cell);
    if (!text) return tg_fail_context("%s: a folder needs a config.json; save to a .safetensors file", dir);
    json_t *config = NULL, *generation = NULL;
    teng_status status = tg_json_parse("config.json", text, strlen(text), &config);
    if (status == TENG_OK)
        status = tg_hf_set_dtype(config, items->len ? items->data[0].desc.dtype : TENG_F32);
    if (status == TENG_OK) status = generation_of(tokenizer, tokenizer_dir, &generation);
    if (status == TENG_OK) {
        const tg_hf_folder folder = {.config = config,
                                     .generation_config = generation,
                                     .items = items->data,
                                     .item_count = items->len,
                                     .tokenizer_dir = tokenizer_dir};
        status = tg_hf_save(dir, &folder);
    }
    json_decref(config);
    json_decref(generation);
    return status;
}

teng_status tg_core_save_folder(tg_core *core, const char *dir, const tg_tokenizer *tokenizer,
                                const char *tokenizer_dir)
{
    tg_arena *arena = tg_arena_create();
    tg_folder_items items = {0};
    teng_status status = arena ? tg_core_folder_items(core, arena, &items) : TENG_MEMORY;
    if (status == TENG_OK) status = save_items(core, dir, &items, tokenizer, tokenizer_dir);
    tg_vec_free(&items);
    tg_arena_destroy(&arena);
    return status;
}

/* ---- out of files: each value is read when its turn has come ---- */
typedef struct range { /* of a parameter */
    const placement *from;
    size_t n;
    int64_t offset;
} range;

static teng_status fetch_range(void *user, const tg_ckpt_item *item, void *to)
{
    const range *r = user;
    const int64_t last = r->offset + tg_desc_numel(&item->desc);
    for (size_t i = 0; i < r->n; i++) {
        const placement *p = &r->from[i];
        const int64_t end_of = p->offset + tg_desc_numel(&p->want),
                      begin_at = p->offset > r->offset ? p->offset : r->offset,
                      end_at = end_of < last ? end_of : last;
        teng_desc want = p->want;
        tg_box box;
        if (begin_at >= end_at) continue;
        want.dtype = item->desc.dtype;
        if (!tg_box_of_range(&want, begin_at - p->offset, end_at - begin_at, &box))
            return tg_fail(TENG_UNSUPPORTED, "%s: %s is no block of tensor %s", p->tensor->file, item->name,
                           p->tensor->name);
        TG_TRY(tg_st_read_box(p->tensor, &want, &box,
                              (char *)to + (begin_at - r->offset) * teng_dtype_size(want.dtype)));
        tg_st_forget(p->tensor);
    }
    return TENG_OK;
}

/* The items of a parameter that lies in from[n]. */
static teng_status add_ranges(const matching *m, const placement *from, size_t n, teng_dtype dtype,
                              tg_arena *arena, tg_folder_items *out)
{
    placement *kept = tg_arena_alloc(arena, sizeof *kept * n);
    tg_lm_parts parts = {0};
    if (!kept) return TENG_MEMORY;
    memcpy(kept, from, sizeof *kept * n);
    teng_status status = tg_lm_file_parts(m->cell, from->param, &parts);
    for (size_t i = 0; i < n && status == TENG_OK; i++)
        status = tg_st_check(from[i].tensor, &from[i].want);
    for (size_t i = 0; i < parts.len && status == TENG_OK; i++) {
        range *r = tg_arena_alloc(arena, sizeof *r);
        const char *name = tg_arena_strdup(arena, parts.data[i].name);
        if (r) *r = (range){kept, n, parts.data[i].offset};
        tg_ckpt_item item = {.name = name, .desc = parts.data[i].desc, .fetch = fetch_range, .user = r};
        item.desc.dtype = dtype;
        if (!r || !name || !tg_vec_push(out, item)) status = TENG_MEMORY;
    }
    tg_lm_parts_free(&parts);
    return status;
}

teng_status tg_core_items_of_weights(teng_cell *lm, const tg_weights *weights, teng_dtype dtype,
                                     tg_arena *arena, tg_folder_items *out)
{
    matching m;
    teng_status status = begin(&m, lm, weights);
    for (size_t i = 0, n; i < m.placed.len && status == TENG_OK; i += n) {
        for (n = 1; i + n < m.placed.len && m.placed.data[i + n].param == m.placed.data[i].param;)
            n++;
        status = add_ranges(&m, &m.placed.data[i], n, dtype, arena, out);
    }
    end(&m);
    return status;
}

typedef struct later {
    const tg_st_tensor *tensor;
    teng_desc whole;
    tg_box box;
} later;

static teng_status fetch(void *user, const tg_ckpt_item *item, void *to)
{
    const later *l = user;
    (void)item;
    return tg_st_read_box(l->tensor, &l->whole, &l->box, to);
}

static teng_status add_later(const tg_param_info *param, const tg_st_tensor *t, const tg_lm_part *part,
                             tg_arena *arena, tg_folder_items *out)
{
    later *l = tg_arena_alloc(arena, sizeof *l);
    const char *name = part ? tg_arena_strdup(arena, part->name) : param->name;
    if (!l || !name) return TENG_MEMORY;
    *l = (later){t, param->desc, tg_box_whole(&param->desc)};
    const tg_ckpt_item item = {
        .name = name, .desc = part ? part->desc : param->desc, .group = "model", .fetch = fetch, .user = l};
    if (part && !tg_box_of_range(&param->desc, part->offset, tg_desc_numel(&part->desc), &l->box))
        return tg_fail(TENG_UNSUPPORTED, "%s is no block of parameter %s", name, param->name);
    return tg_vec_push(out, item) ? TENG_OK : TENG_MEMORY;
}

static teng_status folder_items_of(tg_core *core, const tg_ckpt *ck, tg_arena *arena, tg_folder_items *out)
{
    const tg_param_info *params;
    size_t n;
    tg_lm_info info;
    const bool is_lm = find_info(core->cell, &info);
    TG_TRY(tg_nn_params(core->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        tg_lm_parts parts = {0};
        const tg_st_tensor *t = tg_ckpt_find(ck, "model", params[i].name);
        teng_status status =
            t ? TENG_OK
              : tg_fail(TENG_FORMAT, "checkpoint %s holds no parameter %s", tg_ckpt_path(ck), params[i].name);
        if (status == TENG_OK && is_lm) status = tg_lm_file_parts(core->cell, &params[i], &parts);
        for (size_t k = 0; k < (is_lm ? parts.len : 1) && status == TENG_OK; k++)
            status = add_later(&params[i], t, is_lm ? &parts.data[k] : NULL, arena, out);
        tg_lm_parts_free(&parts);
        TG_TRY(status);
    }
    return TENG_OK;
}

teng_status tg_core_save_folder_from(tg_core *core, const tg_ckpt *ck, const char *dir,
                                     const tg_tokenizer *tokenizer, const char *tokenizer_dir)
{
    tg_arena *arena = tg_arena_create();
    tg_folder_items items = {0};
    teng_status status = arena ? folder_items_of(core, ck, arena, &items) : TENG_MEMORY;
    if (status == TENG_OK) status = save_items(core, dir, &items, tokenizer, tokenizer_dir);
    tg_vec_free(&items);
    tg_arena_destroy(&arena);
    return status;
}
