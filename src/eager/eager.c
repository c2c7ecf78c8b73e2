/*
 * Eager execution. Two caches make it fast: prepared kernels by call, and freed buffers by size class. A
 * value's memory is its own until the step's graph ends, so any value can be read back after its operator;
 * views and updates share their operand's memory.
 */
#include "eager/eager.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/strmap.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

#include <string.h>

typedef struct cached_kernel {
    uint64_t hash;
    teng_op_call call; /* own copies of attributes and descriptions */
    const teng_kernel *kernel;
    teng_prepared prepared;
    struct cached_kernel *next;
} cached_kernel;

#define KERNEL_BUCKETS 1024
#define SIZE_CLASSES 512

typedef struct used_buffer {
    void *data;
    int size_class;
} used_buffer;

struct tg_eager {
    tg_store *store;
    tg_device *dev;
    int isa;
    tg_arena *arena; /* of the kernel cache */
    cached_kernel *kernels[KERNEL_BUCKETS];
    size_t n_kernels;
    TG_VEC(void *) idle[SIZE_CLASSES];
    TG_VEC(used_buffer) used;
    void *workspace;
    size_t workspace_bytes;
    size_t bytes, peak;
    TG_VEC(const void *) in;
    tg_node_watch *watch;
    void *watch_user;
    const tg_probe *probe;
};

tg_eager *tg_eager_create(tg_store *store, int isa)
{
    tg_eager *e = tg_calloc(1, sizeof *e);
    if (!e) return NULL;
    e->store = store;
    e->dev = tg_store_device(store);
    e->isa = isa;
    e->arena = tg_arena_create();
    if (!e->arena) tg_eager_destroy(&e);
    return e;
}

void tg_eager_destroy(tg_eager **eager)
{
    tg_eager *e = *eager;
    if (!e) return;
    tg_eager_end(e);
    for (int i = 0; i < KERNEL_BUCKETS; i++)
        for (cached_kernel *c = e->kernels[i]; c; c = c->next)
            if (c->kernel->release && c->prepared.state) c->kernel->release(c->prepared.state);
    for (int i = 0; i < SIZE_CLASSES; i++) {
        for (size_t k = 0; k < e->idle[i].len; k++)
            tg_device_free(e->dev, e->idle[i].data[k]);
        tg_vec_free(&e->idle[i]);
    }
    tg_vec_free(&e->used);
    tg_vec_free(&e->in);
    tg_device_free(e->dev, e->workspace);
    tg_arena_destroy(&e->arena);
    tg_free(e);
    *eager = NULL;
}

/* Size classes: eight to each power of two, from 64 bytes. Sets the class's size. */
static int size_class(size_t bytes, size_t *rounded)
{
    size_t power = 64;
    int c = 0;
    while (power * 2 <= bytes && c < SIZE_CLASSES - 16) {
        power *= 2;
        c += 8;
    }
    const size_t step = power / 8;
    const size_t above = bytes > power ? (bytes - power + step - 1) / step : 0;
    *rounded = power + above * step;
    return c + (int)above;
}

static void *take_buffer(tg_eager *e, size_t bytes)
{
    size_t rounded;
    const int c = size_class(bytes, &rounded);
    if (!tg_vec_reserve(&e->used, e->used.len + 1)) return NULL;
    void *data = e->idle[c].len ? e->idle[c].data[--e->idle[c].len] : tg_device_alloc(e->dev, rounded);
    if (!data) return NULL;
    e->used.data[e->used.len++] = (used_buffer){data, c};
    e->bytes += rounded;
    if (e->bytes > e->peak) e->peak = e->bytes;
    return data;
}

void tg_eager_end(tg_eager *e)
{
    for (size_t i = 0; i < e->used.len; i++) {
        const used_buffer *u = &e->used.data[i];
        if (!tg_vec_push(&e->idle[u->size_class], u->data)) tg_device_free(e->dev, u->data);
    }
    e->used.len = 0;
    e->bytes = 0;
}

static uint64_t hash_call(const teng_op_call *call)
{
    uint64_t h = tg_hash64(&call->op, sizeof(void *), (uint64_t)call->n_in);
    for (int i = 0; i < call->n_in; i++) {
        const teng_desc *d = &call->in[i];
        h = tg_hash64(d->dims, sizeof d->dims[0] * (size_t)d->ndim,
                      h ^ ((uint64_t)d->dtype << 8 | (uint64_t)d->ndim));
    }
    return h;
}

static bool same_call(const teng_op_call *a, const teng_op_call *b)
{
    if (a->op != b->op || a->n_in != b->n_in || !tg_attr_equal(a->op, a->attr, b->attr)) return false;
    for (int i = 0; i < a->n_in; i++)
        if (!tg_desc_equal(&a->in[i], &b->in[i])) return false;
    return true;
}

static teng_status prepare(tg_eager *e, const teng_op_call *call, uint64_t hash, cached_kernel **out)
{
    const teng_op_spec *op = call->op;
    cached_kernel *c = tg_arena_alloc(e->arena, sizeof *c);
    void *attr = tg_arena_alloc(e->arena, op->attr_size + 1);
    teng_desc *in = tg_arena_alloc(e->arena, sizeof *in * (size_t)(call->n_in + 1));
    teng_desc *outs = tg_arena_alloc(e->arena, sizeof *outs * (size_t)call->n_out);
    if (!c || !attr || !in || !outs) return TENG_MEMORY;
    if (op->attr_size) memcpy(attr, call->attr, op->attr_size);
    for (int i = 0; i < call->n_in; i++)
        in[i] = call->in[i];
    for (int o = 0; o < call->n_out; o++)
        outs[o] = call->out[o];
    *c = (cached_kernel){.hash = hash, .call = *call};
    c->call.attr = op->attr_size ? attr : NULL;
    c->call.in = in;
    c->call.out = outs;
    c->kernel = tg_kernel_select(&c->call, e->dev->info.kind, e->isa, NULL);
    if (!c->kernel) return teng_error_status();
    if (c->kernel->prepare) TG_TRY(c->kernel->prepare(&c->call, &c->prepared));
    c->next = e->kernels[hash % KERNEL_BUCKETS];
    e->kernels[hash % KERNEL_BUCKETS] = c;
    e->n_kernels++;
    *out = c;
    return TENG_OK;
}

static teng_status find_kernel(tg_eager *e, const teng_op_call *call, cached_kernel **out)
{
    const uint64_t hash = hash_call(call);
    for (cached_kernel *c = e->kernels[hash % KERNEL_BUCKETS]; c; c = c->next)
        if (c->hash == hash && same_call(&c->call, call)) {
            *out = c;
            return TENG_OK;
        }
    return prepare(e, call, hash, out);
}

static teng_status reserve_workspace(tg_eager *e, size_t bytes)
{
    if (bytes <= e->workspace_bytes) return TENG_OK;
    tg_device_free(e->dev, e->workspace);
    e->workspace_bytes = 0;
    e->workspace = tg_device_alloc(e->dev, bytes);
    if (!e->workspace) return TENG_MEMORY;
    e->workspace_bytes = bytes;
    return TENG_OK;
}

/* Memory of an operand: stored values find theirs on first use. */
static teng_status bind_operand(tg_eager *e, teng_tensor *v)
{
    if (v->data) return TENG_OK;
    if (v->kind != TG_VALUE_PARAM && v->kind != TG_VALUE_STATE)
        return tg_fail(TENG_STATE, "%s has no value yet", v->name ? v->name : "an operand");
    tg_store_entry *entry;
    TG_TRY(tg_store_add(e->store, v->kind == TG_VALUE_PARAM ? TG_STORE_PARAM : TG_STORE_STATE, v->name,
                        &v->desc, &entry));
    v->data = entry->data;
    return TENG_OK;
}

static teng_status run_call(tg_eager *e, tg_node *node)
{
    teng_desc few[8], out[TENG_MAX_OUT];
    teng_desc *in = node->n_in <= 8 ? few : tg_alloc(sizeof *in * (size_t)node->n_in);
    if (!in) return TENG_MEMORY;
    const teng_op_call call = tg_node_call(node, in, out);
    cached_kernel *c = NULL;
    teng_status status = find_kernel(e, &call, &c);
    if (in != few) tg_free(in);
    if (status != TENG_OK) return status;
    TG_TRY(reserve_workspace(e, c->prepared.workspace));
    void *outs[TENG_MAX_OUT];
    e->in.len = 0;
    for (int i = 0; i < node->n_in; i++)
        if (!tg_vec_push(&e->in, node->in[i]->data)) return TENG_MEMORY;
    for (int o = 0; o < node->n_out; o++)
        outs[o] = node->out[o]->data;
    const teng_kernel_args args = {.call = &c->call,
                                   .state = c->prepared.state,
                                   .in = e->in.data,
                                   .out = outs,
                                   .workspace = e->workspace};
    if (!e->probe) return c->kernel->run(&args);
    tg_node_run r = {.node = node, .call = &c->call, .kernel = c->kernel, .begin = tg_clock_seconds()};
    TG_TRY(c->kernel->run(&args));
    TG_TRY(tg_stream_sync(e->dev, NULL));
    r.end = tg_clock_seconds();
    e->probe->ran(e->probe->user, &r);
    return TENG_OK;
}

static teng_status run_node(void *user, tg_node *node)
{
    tg_eager *e = user;
    for (int i = 0; i < node->n_in; i++)
        TG_TRY(bind_operand(e, node->in[i]));
    if (node->op->traits & TENG_OP_VIEW) {
        teng_desc in[1], out[TENG_MAX_OUT];
        const teng_op_call call = tg_node_call(node, in, out);
        node->out[0]->data =
            (char *)node->in[0]->data + (node->op->view_offset ? node->op->view_offset(&call) : 0);
        return TENG_OK;
    }
    for (int o = 0; o < node->n_out; o++) {
        teng_tensor *v = node->out[o];
        const int updates = node->op->updates[o];
        v->data = updates ? node->in[updates - 1]->data : take_buffer(e, tg_desc_bytes(&v->desc));
        if (!v->data) return TENG_MEMORY;
    }
    TG_TRY(run_call(e, node));
    if (e->watch) {
        void *outs[TENG_MAX_OUT];
        for (int o = 0; o < node->n_out; o++)
            outs[o] = node->out[o]->data;
        if (e->watch(e->watch_user, node, outs)) e->watch = NULL;
    }
    return TENG_OK;
}

void tg_eager_watch(tg_eager *eager, tg_node_watch *watch, void *user)
{
    eager->watch = watch;
    eager->watch_user = user;
}

void tg_eager_probe(tg_eager *eager, const tg_probe *probe)
{
    eager->probe = probe;
}

void tg_eager_begin(tg_eager *eager, tg_graph *g)
{
    g->on_node = run_node;
    g->on_node_user = eager;
}

teng_status tg_eager_run(tg_eager *eager, tg_graph *g)
{
    for (size_t i = 0; i < g->nodes.len; i++)
        if (!g->nodes.data[i]->dead) TG_TRY(run_node(eager, g->nodes.data[i]));
    return TENG_OK;
}

teng_status tg_eager_feed(tg_eager *eager, teng_tensor *input, const void *data)
{
    const size_t bytes = tg_desc_bytes(&input->desc);
    if (!input->data) input->data = take_buffer(eager, bytes);
    if (!input->data) return TENG_MEMORY;
    return tg_device_copy(eager->dev, NULL, TG_COPY_TO_DEVICE, input->data, data, bytes);
}

teng_status tg_eager_fetch(tg_eager *eager, teng_tensor *value, void *data, size_t bytes)
{
    TG_TRY(bind_operand(eager, value));
    if (bytes != tg_desc_bytes(&value->desc))
        return tg_fail(TENG_INVALID, "the value has %zu bytes, %zu were asked for",
                       tg_desc_bytes(&value->desc), bytes);
    return tg_device_copy(eager->dev, NULL, TG_COPY_TO_HOST, data, value->data, bytes);
}

size_t tg_eager_bytes(const tg_eager *eager, size_t *peak)
{
    if (peak) *peak = eager->peak;
    return eager->bytes;
}

size_t tg_eager_kernels(const tg_eager *eager)
{
    return eager->n_kernels;
}

teng_status teng_tensor_read(teng_tensor *t, float *out, int64_t n)
{
    if (!t)
        return teng_error_status() != TENG_OK ? teng_error_status()
                                              : tg_fail(TENG_INVALID, "teng_tensor_read: NULL");
    if (t->graph->on_node != run_node)
        return tg_fail(TENG_STATE,
                       "teng_tensor_read: values can be read in PYNATIVE mode only (context.mode=pynative)");
    if (n != tg_desc_numel(&t->desc))
        return tg_fail(TENG_INVALID, "teng_tensor_read: the value has %lld elements, not %lld",
                       (long long)tg_desc_numel(&t->desc), (long long)n);
    const size_t bytes = tg_desc_bytes(&t->desc);
    void *raw = tg_alloc(bytes);
    if (!raw) return TENG_MEMORY;
    const teng_status status = tg_eager_fetch(t->graph->on_node_user, t, raw, bytes);
    if (status == TENG_OK) tg_convert(TENG_F32, out, t->desc.dtype, raw, n);
    tg_free(raw);
    return status;
}
