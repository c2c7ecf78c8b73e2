/*
 * The profiler of a run. Rows are found by what tells calls apart (operator, kernel, layer, phase, shapes),
 * as bytes: texts are made only when a row is new, so that what is told of an operator costs far less than
 * most operators.
 */
#include "train/profiler.h"

#include "base/clock.h"
#include "base/fail.h"
#include "device/cpu_info.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

#include <string.h>
#include <time.h>

struct tg_profiler {
    tg_core *core;
    int64_t first, last;
    bool inside;  /* of a step that is profiled */
    bool written; /* or given up */
    tg_profile *profile;
    tg_probe probe;
    double cpu;             /* seconds used up to the step */
    tg_comm_counts counted; /* up to the step */
};

/* CPU seconds of all threads so far; negative where the system does not tell. */
static double cpu_seconds(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0) return -1;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- operators ---- */
enum { KEY_INPUTS = 8 }; /* an update of a thousand parameters need not be told apart by all of them */

typedef struct key_bytes {
    char data[2048];
    size_t len;
} key_bytes;

static void put(key_bytes *k, const void *data, size_t n)
{
    if (n > sizeof k->data - k->len) n = sizeof k->data - k->len;
    memcpy(k->data + k->len, data, n);
    k->len += n;
}

static key_bytes key_of(const tg_node_run *r)
{
    key_bytes k;
    k.len = 0;
    put(&k, &r->call->op, sizeof r->call->op);
    put(&k, &r->kernel, sizeof r->kernel);
    put(&k, &r->node->phase, sizeof r->node->phase);
    put(&k, &r->node->recomputed, sizeof r->node->recomputed);
    put(&k, &r->call->n_in, sizeof r->call->n_in);
    for (int i = 0; i < r->call->n_in && i < KEY_INPUTS; i++) {
        const teng_desc *d = &r->call->in[i];
        put(&k, &d->dtype, sizeof d->dtype);
        put(&k, &d->ndim, sizeof d->ndim);
        put(&k, d->dims, sizeof d->dims[0] * (size_t)d->ndim);
    }
    put(&k, r->node->scope, strlen(r->node->scope));
    return k;
}

static void shape_text(const teng_op_call *call, tg_strbuf *out)
{
    for (int i = 0; i < call->n_in && i < KEY_INPUTS; i++) {
        char text[TG_DESC_TEXT];
        tg_strbuf_printf(out, "%s%s", i ? " " : "", tg_desc_text(text, &call->in[i]));
    }
    if (call->n_in > KEY_INPUTS) tg_strbuf_printf(out, " … %d inputs", call->n_in);
}

static bool is_floating(teng_dtype dtype)
{
    return dtype == TENG_F32 || dtype == TENG_BF16 || dtype == TENG_F16;
}

static int new_row(tg_profile *p, const tg_node_run *r, const key_bytes *key)
{
    tg_strbuf shape = {0};
    const char *dtype = "";
    for (int i = 0; i < r->call->n_in && !*dtype; i++)
        if (is_floating(r->call->in[i].dtype)) dtype = teng_dtype_name(r->call->in[i].dtype);
    shape_text(r->call, &shape);
    teng_cost cost;
    tg_op_cost(r->call, &cost);
    const tg_profile_row row = {.part = (tg_profile_part)r->node->phase,
                                .op = r->call->op->name,
                                .layer = r->node->scope,
                                .kernel = r->kernel ? r->kernel->name : "",
                                .dtype = dtype,
                                .shape = tg_strbuf_str(&shape),
                                .recomputed = r->node->recomputed,
                                .flops = cost.flops,
                                .bytes = cost.bytes_read + cost.bytes_written};
    const int index = tg_profile_add(p, key->data, key->len, &row);
    tg_strbuf_free(&shape);
    return index;
}

static void node_ran(void *user, const tg_node_run *r)
{
    tg_profile *p = ((tg_profiler *)user)->profile;
    const key_bytes key = key_of(r);
    int row = tg_profile_find(p, key.data, key.len);
    if (row < 0) row = new_row(p, r, &key);
    if (r->call->op->traits & TENG_OP_COMMUNICATES)
        tg_profile_collective(p, row, r->begin, r->end, r->beside_begin, r->beside_end);
    else
        tg_profile_operator(p, row, r->begin, r->end);
}

/* ---- life ---- */
static json_t *settings_of(const tg_config *cfg)
{
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:I, s:b}", "context.mode",
        cfg->context.mode == TG_CFG_MODE_GRAPH ? "graph" : "pynative", "train.batch_size",
        (json_int_t)cfg->train.batch_size, "train.micro_batches", (json_int_t)cfg->train.micro_batches,
        "train.seq_len", (json_int_t)cfg->train.seq_len, "data.prefetch", (json_int_t)cfg->data.prefetch,
        "data.sink", cfg->data.sink, "checkpoint.async", cfg->checkpoint.async, "train.eval_every",
        (json_int_t)cfg->train.eval_every, "precision.16bit", cfg->precision.level != TG_CFG_PRECISION_O0);
}

/* "data 2, tensor 2, ZeRO 1": new reference, NULL for one rank. */
static json_t *strategy_of(const tg_config *cfg, const tg_team *team)
{
    if (!tg_team_is_many(team)) return NULL;
    tg_strbuf text = {0};
    for (int a = 0; a < TG_AXES; a++)
        if (team->mesh.size[a] > 1)
            tg_strbuf_printf(&text, "%s%s %d", text.len ? ", " : "", tg_axis_name((tg_axis)a),
                             team->mesh.size[a]);
    if (cfg->parallel.zero) tg_strbuf_printf(&text, ", ZeRO %lld", (long long)cfg->parallel.zero);
    if (cfg->parallel.sequence) tg_strbuf_puts(&text, ", sequence");
    if (team->mesh.size[TG_AXIS_PIPELINE] > 1)
        tg_strbuf_printf(&text, ", %lld micro-batches", (long long)cfg->train.micro_batches);
    json_t *out = json_string(tg_strbuf_str(&text));
    tg_strbuf_free(&text);
    return out;
}

static teng_status create(const tg_config *cfg, tg_profiler *p)
{
    tg_cpu_peak peak = {0};
    TG_TRY(tg_cpu_measure_peak(false, &peak));
    const tg_device_info *dev = &p->core->dev->info;
    const tg_profile_machine machine = {.device = dev->name,
                                        .threads = dev->threads,
                                        .f32_flops = 1e9 * peak.f32_gflops,
                                        .bf16_flops = 1e9 * peak.bf16_gflops,
                                        .bytes_per_s = 1e9 * peak.bandwidth_gb_s};
    json_t *settings = settings_of(cfg), *strategy = strategy_of(cfg, p->core->team);
    if (settings && strategy) json_object_set_new(settings, "parallel", strategy);
    p->profile = settings ? tg_profile_create(&machine, settings) : NULL;
    json_decref(settings);
    p->probe = (tg_probe){.ran = node_ran, .user = p};
    return p->profile ? TENG_OK : TENG_MEMORY;
}

teng_status tg_profiler_create(const tg_config *cfg, tg_core *core, tg_profiler **out)
{
    int64_t first, last;
    *out = NULL;
    if (!tg_config_profile_steps(cfg, &first, &last)) return TENG_OK;
    tg_profiler *p = tg_calloc(1, sizeof *p);
    if (!p) return TENG_MEMORY;
    *p = (tg_profiler){.core = core, .first = first, .last = last};
    const teng_status status = create(cfg, p);
    if (status != TENG_OK) tg_profiler_destroy(&p);
    *out = p;
    return status;
}

void tg_profiler_destroy(tg_profiler **profiler)
{
    tg_profiler *p = *profiler;
    if (!p) return;
    tg_profile_destroy(&p->profile);
    tg_free(p);
    *profiler = NULL;
}

/* ---- steps ---- */
static void begin_communication(tg_profiler *p)
{
    if (!tg_team_is_many(p->core->team)) return;
    p->counted = (tg_comm_counts){0};
    tg_comm_count(p->core->team->comm, NULL, &p->counted);
}

static void end_communication(tg_profiler *p)
{
    if (!tg_team_is_many(p->core->team)) return;
    tg_comm_counts step = {0};
    char axes[TG_AXES_TEXT];
    tg_comm_count(p->core->team->comm, &p->counted, &step);
    tg_profile_communication(p->profile, step.times.busy, step.times.exposed);
    for (tg_axis_set s = 0; s < 1u << TG_AXES; s++) {
        const bool all = s == (1u << TG_AXES) - 1;
        if (step.sent[s])
            tg_profile_sent(p->profile, all ? "all ranks" : tg_axes_text(axes, sizeof axes, s),
                            (double)step.sent[s]);
    }
}

void tg_profiler_begin_step(tg_profiler *p, int64_t step)
{
    if (!p) return;
    p->inside = step >= p->first && step <= p->last && !p->written;
    if (!p->inside) return;
    p->cpu = cpu_seconds();
    begin_communication(p);
    tg_profile_begin_step(p->profile, step, tg_clock_seconds());
    tg_step_probe(p->core->step, &p->probe);
}

void tg_profiler_ran(tg_profiler *p, double wait_s)
{
    if (!p || !p->inside) return;
    tg_step_probe(p->core->step, NULL);
    end_communication(p);
    tg_profile_waited(p->profile, wait_s);
}

void tg_profiler_host(tg_profiler *p, tg_profile_part part, double begin)
{
    if (p && p->inside) tg_profile_host(p->profile, part, begin, tg_clock_seconds());
}

void tg_profiler_beside(tg_profiler *p, tg_profile_part part, double begin)
{
    if (p) tg_profile_beside(p->profile, part, begin, tg_clock_seconds());
}

void tg_profiler_end_step(tg_profiler *p)
{
    if (!p || !p->inside) return;
    p->inside = false;
    const double cpu = cpu_seconds();
    tg_profile_end_step(p->profile, tg_clock_seconds(), p->cpu >= 0 && cpu >= 0 ? cpu - p->cpu : -1,
                        tg_current_rss());
}

bool tg_profiler_is_inside(const tg_profiler *p)
{
    return p && p->inside;
}

bool tg_profiler_is_due(const tg_profiler *p)
{
    return p && !p->written && p->core->done >= p->last && p->profile->steps.len;
}

teng_status tg_profiler_write(tg_profiler *p, const char *dir, bool *written)
{
    *written = false;
    if (!p || p->written || !p->profile->steps.len) return TENG_OK;
    p->written = true;
    TG_TRY(tg_profile_sum(p->profile));
    TG_TRY(tg_profile_write(p->profile, dir));
    *written = true;
    return TENG_OK;
}
