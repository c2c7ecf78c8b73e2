/*
 * ring_attention and its gradient on the CPU. Queries and keys meet piece by piece, with the kernels of
 * attention: a piece of this rank's queries against a piece of some rank's keys, of one sequence of the
 * batch; pairs of pieces of which nothing is seen are left out. While a block of keys and values is worked
 * on, the next one is on its way. Sums are f32, in the order in which blocks come round: the rank's own one
 * first, then that of the rank before it, and so on, always the same.
 */
#include "op/ring_attention/ring_attention.h"

#include "base/fail.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/op_list.h"
#include "tensor/desc.h"
#include "graph/op_table.h"

typedef struct ring_state {
    teng_desc in[6], out[3]; /* of a pair of pieces; of everything with one rank */
    const teng_kernel *kernel;
    teng_prepared prepared;
    int64_t pieces, rows;                                  /* of a piece */
    int64_t batch, heads, groups, width, q_piece, k_piece; /* elements of a piece */
    size_t size;                                           /* of an element of q, k, v */
    size_t at[8], workspace;
} ring_state;
/* Parts of the workspace; that of the kernel comes first. */
enum {
    BLOCKS, /* two of keys and values: one that is worked on, one on its way */
    SUM_Q,  /* f32: y, or dq, of all rows, where the output has 16 bits */
    PART_Q, /* f32: y, or dq, of a pair of pieces */
    PART_LSE,
    SUMS_KV, /* two of f32 dk and dv */
    PART_K,
    PART_V,
};

static void release(void *state)
{
    ring_state *s = state;
    if (s && s->kernel && s->kernel->release) s->kernel->release(s->prepared.state);
    tg_free(s);
}

static void reserve(ring_state *s, int part, int64_t elements, size_t size)
{
    s->at[part] = s->workspace = (s->workspace + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
    s->workspace += (size_t)elements * size;
}

static teng_status prepare_pair(ring_state *s, const teng_op_call *call, const teng_op_spec *op)
{
    const tg_ring_attr *a = call->attr;
    const bool whole = a->parts == 1;
    for (int i = 0; i < call->n_in; i++) {
        s->in[i] = call->in[i];
        if (whole) continue;
        s->in[i].dims[0] = 1;
        s->in[i].dims[s->in[i].ndim == 3 ? 2 : 1] = s->rows; /* lse is [B, H, T] */
    }
    const teng_op_call pair = {
        .op = op, .attr = &a->options, .n_in = call->n_in, .n_out = call->n_out, .in = s->in, .out = s->out};
    for (int o = 0; o < call->n_out; o++) {
        s->out[o] = call->out[o];
        if (whole) continue;
        s->out[o].dtype = TENG_F32;
        s->out[o].dims[0] = 1;
        s->out[o].dims[s->out[o].ndim == 3 ? 2 : 1] = s->rows;
    }
    s->kernel = tg_kernel_select(&pair, "cpu", TG_ISA_LEVEL, NULL);
    if (!s->kernel) return teng_error_status();
    return s->kernel->prepare ? s->kernel->prepare(&pair, &s->prepared) : TENG_OK;
}

static teng_status prepare_as(const teng_op_call *call, const teng_op_spec *op, teng_prepared *out)
{
    const tg_ring_attr *a = call->attr;
    const int64_t *q = call->in[0].dims, *k = call->in[1].dims;
    ring_state *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    s->pieces = tg_ring_pieces(a);
    s->rows = q[1] / s->pieces;
    s->batch = q[0];
    s->heads = q[2];
    s->groups = k[2];
    s->width = q[3];
    s->q_piece = s->rows * s->heads * s->width;
    s->k_piece = s->rows * s->groups * s->width;
    s->size = (size_t)teng_dtype_size(call->in[0].dtype);
    const teng_status status = prepare_pair(s, call, op);
    if (status != TENG_OK) {
        s->kernel = NULL;
        release(s);
        return status;
    }
    s->workspace = s->prepared.workspace;
    if (a->parts > 1) {
        const int64_t kv = 2 * tg_desc_numel(&call->in[1]);
        reserve(s, BLOCKS, 2 * kv, s->size);
        reserve(s, SUM_Q, call->in[0].dtype == TENG_F32 ? 0 : tg_desc_numel(&call->in[0]), 4);
        reserve(s, PART_Q, s->q_piece, 4);
        reserve(s, PART_LSE, s->rows * s->heads, 4);
        if (call->n_out > 2) {
            reserve(s, SUMS_KV, 2 * kv, 4);
            reserve(s, PART_K, s->k_piece, 4);
            reserve(s, PART_V, s->k_piece, 4);
        }
    }
    *out = (teng_prepared){s, s->workspace};
    return TENG_OK;
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    return prepare_as(call, &tg_op_attention, out);
}
static teng_status prepare_grad(const teng_op_call *call, teng_prepared *out)
{
    return prepare_as(call, &tg_op_attention_grad, out);
}

/* ---- the ring ---- */
typedef struct parcel { /* to the next rank, from the one before */
    tg_group *group;
    const void *send;
    void *receive;
    size_t bytes;
} parcel;

static teng_status pass_on(void *user)
{
    const parcel *p = user;
    const int n = tg_group_size(p->group), i = tg_group_index(p->group);
    return tg_comm_exchange(p->group, (i + 1) % n, p->send, p->bytes, (i + n - 1) % n, p->receive, p->bytes);
}

static teng_status group_of(const tg_ring_attr *a, tg_group **out)
{
    *out = tg_comm_along(tg_comm_current(), (tg_axis_set)a->axes);
    if (!*out) return teng_error_status();
    if (tg_group_size(*out) != a->parts || tg_group_index(*out) != a->index)
        return tg_fail(TENG_STATE, "planned for rank %lld of %lld, the group has %d and this one is %d",
                       (long long)a->index, (long long)a->parts, tg_group_size(*out), tg_group_index(*out));
    return TENG_OK;
}

typedef struct ring {
    const teng_kernel_args *args;
    const tg_ring_attr *a;
    const ring_state *s;
    char *workspace;
    float *sum_q;                   /* y or dq */
    const char *keys, *values;      /* of the block that is here, of the sequence and piece as pair_at says */
    float *dk, *dv;                 /* sums of that block */
    teng_attention_options options; /* of the pair of pieces */
} ring;

static float *floats(const ring *r, int part)
{
    return (float *)(void *)(r->workspace + r->s->at[part]);
}

/* Whether queries of the piece at q_begin see keys of the one at k_begin, and how. */
static bool meet(ring *r, int64_t q_begin, int64_t k_begin)
{
    const int64_t rows = r->s->rows, shift = q_begin - k_begin, window = r->a->options.window;
    r->options = r->a->options;
    if (!r->options.causal) return true;
    if (shift < 0 || (window > 0 && shift - window + 1 > rows - 1)) return false;
    r->options.shift = shift;
    if (shift >= rows && window <= 0) r->options.causal = r->options.shift = 0; /* all of them */
    return true;
}

static teng_status run_pair(const ring *r, const teng_op_spec *op, int n_in, int n_out, const void *const *in,
                            void *const *out)
{
    const ring_state *s = r->s;
    teng_desc out_desc[3] = {s->out[0], s->out[1], s->out[2]};
    const teng_op_call call = {
        .op = op, .attr = &r->options, .n_in = n_in, .n_out = n_out, .in = s->in, .out = out_desc};
    const teng_kernel_args args = {.call = &call,
                                   .state = s->prepared.state,
                                   .in = in,
                                   .out = out,
                                   .workspace = r->workspace,
                                   .stream = r->args->stream};
    return s->kernel->run(&args);
}

static void add(float *sums, const float *part, int64_t n)
{
    TG_PARALLEL_FOR(n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(n, TG_BLOCK); b++)
        TG_VECTORS(i, len, b * TG_BLOCK, tg_block_end(b, TG_BLOCK, n))
        {
            tg_v_store_part(TENG_F32, sums, i,
                            tg_v_load_part(TENG_F32, sums, i, len) + tg_v_load_part(TENG_F32, part, i, len),
                            len);
        }
}

static void narrow(teng_dtype dtype, const float *from, void *to, int64_t n)
{
    TG_PARALLEL_FOR(n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(n, TG_BLOCK); b++)
        TG_FLOAT_SWITCH(
            dtype, T, TG_VECTORS(i, len, b * TG_BLOCK, tg_block_end(b, TG_BLOCK, n)) {
                tg_v_store_part(T, to, i, tg_v_load_part(TENG_F32, from, i, len), len);
            });
}

/* Takes y and lse of a pair of pieces into those of the rank, y [rows, heads, width]; a row without keys in
 * this pair is left as it is. lse is -infinity where no key has come yet. */
static void merge(const ring *r, float *y, float *lse, int64_t lse_step)
{
    const ring_state *s = r->s;
    const float *part = floats(r, PART_Q), *part_lse = floats(r, PART_LSE);
    const teng_op_call call = {.attr = &r->options, .in = s->in};
    const tg_attention_sizes z = tg_attention_sizes_of(&call);
    TG_PARALLEL_FOR(s->q_piece >= TG_PARALLEL_MIN)
    for (int64_t t = 0; t < s->rows; t++) {
        if (tg_attention_last(&z, t) < tg_attention_first(&z, t)) continue;
        for (int64_t h = 0; h < s->heads; h++) {
            float *old = lse + h * lse_step + t;
            const float new = part_lse[h * s->rows + t];
            const float max = fmaxf(*old, new), a = expf(*old - max), b = expf(new - max);
            const int64_t at = (t * s->heads + h) * s->width;
            const bool first = *old == -INFINITY;
            *old = first ? new : max + logf(a + b);
            const float keep = first ? 0.0f : a / (a + b), take = first ? 1.0f : b / (a + b);
            TG_VECTORS(i, len, at, at + s->width)
            {
                tg_v_store_part(TENG_F32, y, i,
                                tg_v_load_part(TENG_F32, y, i, len) * keep +
                                    tg_v_load_part(TENG_F32, part, i, len) * take,
                                len);
            }
        }
    }
}

/* The pair of pieces p of the queries and c of the keys of sequence b. */
static teng_status forward_pair(const ring *r, int64_t b, int64_t p, int64_t c)
{
    const ring_state *s = r->s;
    const int64_t q = (b * s->pieces + p) * s->q_piece, k = (b * s->pieces + c) * s->k_piece;
    const int64_t all = s->pieces * s->rows; /* rows of the rank */
    const void *in[] = {(const char *)r->args->in[0] + (size_t)q * s->size, r->keys + (size_t)k * s->size,
                        r->values + (size_t)k * s->size};
    void *out[] = {floats(r, PART_Q), floats(r, PART_LSE)};
    TG_TRY(run_pair(r, &tg_op_attention, 3, 2, in, out));
    merge(r, r->sum_q + q, (float *)r->args->out[1] + b * s->heads * all + p * s->rows, all);
    return TENG_OK;
}

static teng_status backward_pair(const ring *r, int64_t b, int64_t p, int64_t c)
{
    const ring_state *s = r->s;
    const int64_t q = (b * s->pieces + p) * s->q_piece, k = (b * s->pieces + c) * s->k_piece;
    const int64_t all = s->pieces * s->rows;
    const size_t q_bytes = (size_t)q * s->size, k_bytes = (size_t)k * s->size;
    float *lse = floats(r, PART_LSE);
    for (int64_t h = 0; h < s->heads; h++)
        memcpy(lse + h * s->rows, (const float *)r->args->in[4] + (b * s->heads + h) * all + p * s->rows,
               sizeof *lse * (size_t)s->rows);
    const void *in[] = {(const char *)r->args->in[0] + q_bytes,
                        r->keys + k_bytes,
                        r->values + k_bytes,
                        (const char *)r->args->in[3] + q_bytes,
                        lse,
                        (const char *)r->args->in[5] + q_bytes};
    void *out[] = {floats(r, PART_Q), floats(r, PART_K), floats(r, PART_V)};
    TG_TRY(run_pair(r, &tg_op_attention_grad, 6, 3, in, out));
    add(r->sum_q + q, floats(r, PART_Q), s->q_piece);
    add(r->dk + k, floats(r, PART_K), s->k_piece);
    add(r->dv + k, floats(r, PART_V), s->k_piece);
    return TENG_OK;
}

/* All of this rank's queries against the keys of rank `owner`. */
static teng_status work(ring *r, int64_t owner,
                        teng_status (*pair)(const ring *r, int64_t b, int64_t p, int64_t c))
{
    const ring_state *s = r->s;
    for (int64_t p = 0; p < s->pieces; p++)
        for (int64_t c = 0; c < s->pieces; c++) {
            if (!meet(r, tg_ring_begin(r->a, s->rows, r->a->index, p),
                      tg_ring_begin(r->a, s->rows, owner, c)))
                continue;
            for (int64_t b = 0; b < s->batch; b++)
                TG_TRY(pair(r, b, p, c));
        }
    return TENG_OK;
}

static teng_status go_round(ring *r, tg_group *group, bool backward)
{
    const ring_state *s = r->s;
    const int64_t parts = r->a->parts, half = s->batch * s->pieces * s->k_piece; /* keys, or values */
    const size_t bytes = (size_t)half * s->size;
    char *block[] = {r->workspace + s->at[BLOCKS], r->workspace + s->at[BLOCKS] + 2 * bytes};
    float *sums[] = {floats(r, SUMS_KV), floats(r, SUMS_KV) + 2 * half};
    parcel keys = {.group = group, .bytes = 2 * bytes},
           grads = {.group = group, .bytes = 2 * (size_t)half * sizeof(float)};
    tg_ticket keys_ticket = 0, grads_ticket = 0;
    memcpy(block[0], r->args->in[1], bytes);
    memcpy(block[0] + bytes, r->args->in[2], bytes);
    for (int64_t step = 0; step < parts; step++) {
        const int64_t owner = (r->a->index - step + parts) % parts;
        const bool last = step == parts - 1;
        r->keys = block[step % 2];
        r->values = r->keys + bytes;
        if (!last) {
            keys.send = r->keys;
            keys.receive = block[(step + 1) % 2];
            keys_ticket = tg_comm_post(tg_comm_current(), pass_on, &keys);
        }
        teng_status status = TENG_OK;
        if (backward) { /* sums of this block come from the rank that had it before */
            if (step > 0) status = tg_comm_wait(tg_comm_current(), grads_ticket);
            float *own = sums[step % 2];
            if (step == 0) memset(own, 0, grads.bytes);
            r->dk = own;
            r->dv = own + half;
        }
        if (status == TENG_OK) status = work(r, owner, backward ? backward_pair : forward_pair);
        if (!last) {
            const teng_status came = tg_comm_wait(tg_comm_current(), keys_ticket);
            if (status == TENG_OK) status = came;
        }
        TG_TRY(status);
        if (backward) {
            grads.send = sums[step % 2];
            grads.receive = sums[(step + 1) % 2];
            grads_ticket = tg_comm_post(tg_comm_current(), pass_on, &grads);
        }
    }
    if (!backward) return TENG_OK;
    TG_TRY(tg_comm_wait(tg_comm_current(), grads_ticket));
    narrow(r->args->call->out[1].dtype, sums[parts % 2], r->args->out[1], half);
    narrow(r->args->call->out[2].dtype, sums[parts % 2] + half, r->args->out[2], half);
    return TENG_OK;
}

static teng_status run_as(const teng_kernel_args *args, const teng_op_spec *op)
{
    const ring_state *s = args->state;
    const bool backward = op == &tg_op_attention_grad;
    const int64_t n = tg_desc_numel(&args->call->in[0]), rows = s->batch * s->heads * s->pieces * s->rows;
    ring r = {.args = args, .a = args->call->attr, .s = s, .workspace = args->workspace};
    tg_group *group;
    r.options = r.a->options;
    if (r.a->parts == 1) return run_pair(&r, op, args->call->n_in, args->call->n_out, args->in, args->out);
    TG_TRY(group_of(r.a, &group));
    const bool wide = args->call->in[0].dtype == TENG_F32;
    r.sum_q = wide ? args->out[0] : floats(&r, SUM_Q);
    memset(r.sum_q, 0, sizeof(float) * (size_t)n);
    float *lse = backward ? NULL : args->out[1];
    for (int64_t i = 0; i < rows && lse; i++)
        lse[i] = -INFINITY;
    TG_TRY(go_round(&r, group, backward));
    for (int64_t i = 0; i < rows && lse; i++)
        if (lse[i] == -INFINITY) lse[i] = 0.0f;
    if (!wide) narrow(args->call->out[0].dtype, r.sum_q, args->out[0], n);
    return TENG_OK;
}

static teng_status run(const teng_kernel_args *args)
{
    return run_as(args, &tg_op_attention);
}
static teng_status run_grad(const teng_kernel_args *args)
{
    return run_as(args, &tg_op_attention_grad);
}

TG_KERNELS(tg_ring_attention_kernels) = {{"ring", NULL, prepare, run, release}, {0}};
TG_KERNELS(tg_ring_attention_grad_kernels) = {{"ring", NULL, prepare_grad, run_grad, release}, {0}};
