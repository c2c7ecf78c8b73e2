/*
 * What a profile means, in words and tables. Against the roofline (Williams, Waterman, Patterson 2009): an
 * operator needs at least flops / peak and bytes / bandwidth. What is lost is counted from the peak: at peak
 * a step would take Σ flops / peak; each group's loss is its time above its own share of that, so losses and
 * ideal add up to the step. Suggestions follow from these numbers and from the settings of the run; they
 * promise nothing.
 */
#include "monitor/profile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- roofline ---- */
static double peak_of(const tg_profile *p, const tg_profile_row *r)
{
    const bool low = strcmp(r->dtype, "bf16") == 0 && p->machine.bf16_flops > 0;
    return low ? p->machine.bf16_flops : p->machine.f32_flops;
}

static double by_flops(const tg_profile *p, const tg_profile_row *r)
{
    const double peak = peak_of(p, r);
    return peak > 0 ? r->flops / peak : 0;
}

double tg_profile_attainable(const tg_profile *p, const tg_profile_row *r, bool *memory)
{
    const double flops = by_flops(p, r),
                 bytes = p->machine.bytes_per_s > 0 ? r->bytes / p->machine.bytes_per_s : 0;
    if (memory) *memory = bytes > flops;
    return bytes > flops ? bytes : flops;
}

/* ---- groups: rows added up by a name ---- */
typedef struct group {
    char name[160], part[16];
    double calls, seconds, flops, bytes, attainable, ideal; /* ideal: flops at the peak */
    double memory;                                          /* seconds of rows bound by memory */
} group;
typedef TG_VEC(group) groups;

static group *group_of(groups *all, const char *name, const char *part)
{
    for (size_t i = 0; i < all->len; i++)
        if (strcmp(all->data[i].name, name) == 0 && strcmp(all->data[i].part, part) == 0)
            return &all->data[i];
    group g = {0};
    snprintf(g.name, sizeof g.name, "%s", name);
    snprintf(g.part, sizeof g.part, "%s", part);
    return tg_vec_push(all, g) ? &all->data[all->len - 1] : NULL;
}

static void add_row(const tg_profile *p, const tg_profile_row *r, group *g)
{
    const double n = (double)r->calls;
    bool memory;
    if (!g) return;
    g->calls += n;
    g->seconds += r->seconds;
    g->flops += n * r->flops;
    g->bytes += n * r->bytes;
    g->attainable += n * tg_profile_attainable(p, r, &memory);
    g->ideal += n * by_flops(p, r);
    if (memory) g->memory += r->seconds;
}

static int longer_first(const void *a, const void *b)
{
    const double x = ((const group *)a)->seconds, y = ((const group *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* "model.layers.11.mlp.up_proj" → "model.layers.11": down to the first number, all of a path without one. */
static void layer_of(const char *path, char *out, size_t size)
{
    const char *p = path;
    size_t n = strlen(path);
    while (*p) {
        const size_t part = strcspn(p, ".");
        if (part && strspn(p, "0123456789") == part) {
            n = (size_t)(p - path) + part;
            break;
        }
        p += part + (p[part] == '.');
    }
    snprintf(out, size, "%.*s", (int)n, n ? path : "(top)");
    if (!n) snprintf(out, size, "(top)");
}

static groups by_operator(const tg_profile *p)
{
    groups all = {0};
    for (size_t i = 0; i < p->rows.len; i++)
        add_row(p, &p->rows.data[i],
                group_of(&all, p->rows.data[i].op, tg_profile_part_name(p->rows.data[i].part)));
    if (all.len) qsort(all.data, all.len, sizeof *all.data, longer_first);
    return all;
}

static groups by_layer(const tg_profile *p)
{
    groups all = {0};
    char name[160];
    for (size_t i = 0; i < p->rows.len; i++) {
        layer_of(p->rows.data[i].layer, name, sizeof name);
        add_row(p, &p->rows.data[i], group_of(&all, name, ""));
    }
    if (all.len) qsort(all.data, all.len, sizeof *all.data, longer_first);
    return all;
}

/* ---- losses ---- */
enum { LOSSES = 3 };
typedef struct loss {
    char what[64], suggestion[400];
    double seconds; /* a step */
} loss;

typedef struct losses {
    const tg_profile *p;
    loss list[16];
    int n;
} losses;

static int64_t setting(const tg_profile *p, const char *key, int64_t absent)
{
    const json_t *v = json_object_get(p->settings, key);
    return json_is_integer(v) ? json_integer_value(v) : json_is_boolean(v) ? json_is_true(v) : absent;
}

static bool is_pynative(const tg_profile *p)
{
    const char *mode = json_string_value(json_object_get(p->settings, "context.mode"));
    return mode && strcmp(mode, "pynative") == 0;
}

static TENG_PRINTF(4, 5) void lose(losses *l, double seconds, const char *what, const char *fmt, ...)
{
    if (seconds <= 0 || l->n == (int)(sizeof l->list / sizeof *l->list)) return;
    loss *at = &l->list[l->n++];
    at->seconds = seconds / (double)l->p->n_steps;
    snprintf(at->what, sizeof at->what, "%s", what);
    va_list args;
    va_start(args, fmt);
    vsnprintf(at->suggestion, sizeof at->suggestion, fmt, args);
    va_end(args);
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static bool is_attention(const tg_profile_row *r)
{
    return strncmp(r->op, "attention", 9) == 0;
}

/* What a row is lost to. */
typedef enum cause {
    SMALL_PRODUCTS, /* less than a few tenths of a millisecond even at the peak */
    PRODUCTS,
    ATTENTION,
    MOVING, /* bound by memory */
    UPDATING,
    CAUSES
} cause;
#define SMALL_SECONDS 2e-4

static cause cause_of(const tg_profile *p, const tg_profile_row *r)
{
    bool memory;
    const double least = tg_profile_attainable(p, r, &memory);
    if (r->part == TG_PROFILE_UPDATE) return UPDATING;
    if (is_attention(r)) return ATTENTION;
    if (memory) return MOVING;
    return least < SMALL_SECONDS ? SMALL_PRODUCTS : PRODUCTS;
}

/* The operators of one cause that take longest: "gelu_grad 3.1 ms, layer_norm 2.0 ms". */
static void name_largest(const tg_profile *p, cause c, char *out, size_t size)
{
    groups all = {0};
    size_t at = 0;
    for (size_t i = 0; i < p->rows.len; i++)
        if (cause_of(p, &p->rows.data[i]) == c)
            add_row(p, &p->rows.data[i], group_of(&all, p->rows.data[i].op, ""));
    if (all.len) qsort(all.data, all.len, sizeof *all.data, longer_first);
    *out = 0;
    for (size_t i = 0; i < all.len && i < LOSSES && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s %.3g ms", i ? ", " : "", all.data[i].name,
                               1e3 * all.data[i].seconds / (double)p->n_steps);
    tg_vec_free(&all);
}

static void lose_products(losses *l, const group *g, bool small)
{
    const tg_profile *p = l->p;
    const bool low = setting(p, "precision.16bit", 0);
    const double gain = p->machine.f32_flops > 0 ? p->machine.bf16_flops / p->machine.f32_flops : 0;
    const double reached = percent(g->ideal, g->seconds);
    if (small)
        lose(l, g->seconds - g->ideal, "small products",
             "%.0f products a step of %.0f us each reach %.0f %% of the peak; larger ones fill the cores "
             "better: "
             "raise train.batch_size%s",
             g->calls / (double)p->n_steps, 1e6 * g->seconds / g->calls, reached,
             setting(p, "train.micro_batches", 1) > 1 ? " or lower train.micro_batches" : "");
    else if (!low && gain > 1.3)
        lose(l, g->seconds - g->ideal, "products",
             "they reach %.0f %% of the f32 peak; this machine multiplies bf16 %.1f times as fast: "
             "precision.level=O2 precision.dtype=bf16",
             reached, gain);
    else
        lose(l, g->seconds - g->ideal, "products",
             "they reach %.0f %% of the peak; `teng plan --steps` shows their layouts and kernels, and "
             "`teng bench op` what each shape reaches alone",
             reached);
}

static void lose_attention(losses *l, const group *g)
{
    enum { LONG = 512 }; /* below, scores are less work than the projections around them */
    const double reached = percent(g->ideal, g->seconds);
    const long long length = setting(l->p, "train.seq_len", 0);
    if (length >= LONG)
        lose(l, g->seconds - g->ideal, "attention",
             "it reaches %.0f %% of the peak on sequences of %lld tokens, and its work grows with their "
             "square: a "
             "shorter train.seq_len or model.sliding_window, where the text allows it",
             reached, length);
    else
        lose(l, g->seconds - g->ideal, "attention",
             "it reaches %.0f %% of the peak in calls of %.0f us: sequences of %lld tokens are little work "
             "for each "
             "head; fewer and wider heads, or longer sequences, use it better",
             reached, g->calls > 0 ? 1e6 * g->seconds / g->calls : 0, length);
}

static void lose_operators(losses *l)
{
    const tg_profile *p = l->p;
    group g[CAUSES] = {0};
    char largest[200];
    for (size_t i = 0; i < p->rows.len; i++)
        add_row(p, &p->rows.data[i], &g[cause_of(p, &p->rows.data[i])]);
    if (g[SMALL_PRODUCTS].calls > 0) lose_products(l, &g[SMALL_PRODUCTS], true);
    if (g[PRODUCTS].calls > 0) lose_products(l, &g[PRODUCTS], false);
    lose_attention(l, &g[ATTENTION]);
    name_largest(p, MOVING, largest, sizeof largest);
    const double reached = percent(g[MOVING].attainable, g[MOVING].seconds);
    if (reached < 50)
        lose(l, g[MOVING].seconds - g[MOVING].ideal, "operators that move data",
             "%s: %.0f %% of memory's rate, %.0f us a call; larger batches make them worth their start",
             largest, reached, g[MOVING].calls > 0 ? 1e6 * g[MOVING].seconds / g[MOVING].calls : 0);
    else
        lose(l, g[MOVING].seconds - g[MOVING].ideal, "operators that move data",
             "%s: %.0f %% of memory's rate; fewer bytes help: %s", largest, reached,
             !setting(p, "precision.16bit", 0) ? "16 bits halve them (precision.level=O2)"
             : is_pynative(p)                  ? "context.mode=graph drops what is not needed"
                              : "fewer or fused operators; a plugin can bring one (context.plugins)");
    lose(l, g[UPDATING].seconds - g[UPDATING].ideal, "update of the parameters",
         "%.1f %% of the step, at %.0f %% of memory's rate; more tokens a step make it rarer: "
         "train.batch_size "
         "with train.micro_batches",
         percent(g[UPDATING].seconds, p->wall), percent(g[UPDATING].attainable, g[UPDATING].seconds));
}

static void lose_host(losses *l)
{
    const tg_profile *p = l->p;
    const double steps = (double)p->n_steps;
    lose(l, p->part[TG_PROFILE_DATA], "waiting for data", "%.1f %% of the step; %s",
         percent(p->part[TG_PROFILE_DATA], p->wall),
         setting(p, "data.prefetch", 1) > 0
             ? "tokenise the text once with `teng data prepare`, or put it on a faster disk"
             : "data.prefetch=4 makes batches ahead");
    lose(l, p->part[TG_PROFILE_EVALUATION], "evaluation",
         "%.1f ms a step of those measured; a larger train.eval_every or smaller train.eval_batches",
         1e3 * p->part[TG_PROFILE_EVALUATION] / steps);
    lose(l, p->part[TG_PROFILE_CHECKPOINT], "checkpoints", "%.1f ms a step of those measured; %s",
         1e3 * p->part[TG_PROFILE_CHECKPOINT] / steps,
         setting(p, "checkpoint.async", 1) ? "a larger checkpoint.every" : "checkpoint.async=true");
    lose(l, p->part[TG_PROFILE_BOOKS], "metrics and console", "%s",
         setting(p, "data.sink", 0) ? "they wait for their thread: the disk or the terminal is slow"
                                    : "data.sink=true writes them while the next step computes");
    lose(l, p->gaps, "gaps between operators",
         is_pynative(p)
             ? "%.1f %% of the step, the host between operators: context.mode=graph plans them once"
             : "%.1f %% of the step: feeding inputs, calling kernels, and the profiler's own clock; "
               "larger batches make it smaller",
         percent(p->gaps, p->wall));
}

static int larger_first(const void *a, const void *b)
{
    const double x = ((const loss *)a)->seconds, y = ((const loss *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

static losses find_losses(const tg_profile *p)
{
    losses l = {.p = p};
    lose_operators(&l);
    lose_host(&l);
    qsort(l.list, (size_t)l.n, sizeof *l.list, larger_first);
    return l;
}

/* What no loss shows, because each is measured against the peak of the dtype in use: the other dtype's. */
static void hint_of(const tg_profile *p, char *out, size_t size)
{
    double products = 0;
    bool memory;
    *out = 0;
    for (size_t i = 0; i < p->rows.len; i++) {
        tg_profile_attainable(p, &p->rows.data[i], &memory);
        if (!memory) products += p->rows.data[i].seconds;
    }
    const double gain = p->machine.f32_flops > 0 ? p->machine.bf16_flops / p->machine.f32_flops : 0;
    if (setting(p, "precision.16bit", 0) || gain < 1.3 || products < 0.2 * p->wall) return;
    snprintf(out, size,
             "%.0f %% of the step is bound by f32 arithmetic, and this machine multiplies bf16 %.1f times as "
             "fast: "
             "precision.level=O2 precision.dtype=bf16",
             percent(products, p->wall), gain);
}

static double ideal_of(const tg_profile *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->rows.len; i++)
        sum += (double)p->rows.data[i].calls * by_flops(p, &p->rows.data[i]);
    return sum;
}

/* ---- text ---- */
static void put_line(tg_strbuf *out, const char *name, double seconds, const tg_profile *p, const char *note)
{
    tg_strbuf_printf(out, "  %-12s %10.3f ms %6.1f %%%s%s\n", name, 1e3 * seconds / (double)p->n_steps,
                     percent(seconds, p->wall), *note ? "   " : "", note);
}

static double hidden_percent(const tg_profile *p)
{
    return p->exposed < p->communicated ? percent(p->communicated - p->exposed, p->communicated) : 0;
}

/* "data 2, ZeRO 3": how the ranks share the work. */
static void put_communication(const tg_profile *p, tg_strbuf *out)
{
    const char *strategy = json_string_value(json_object_get(p->settings, "parallel")), *axes;
    json_t *bytes;
    char text[32];
    bool first = true;
    if (p->communicated <= 0) return;
    tg_strbuf_printf(out,
                     "  communication: %.3f ms, %.0f %% of it hidden beside operators (parallel.fusion, "
                     "train.micro_batches)\n",
                     1e3 * p->communicated / (double)p->n_steps, hidden_percent(p));
    if (strategy) tg_strbuf_printf(out, "  ranks: %s\n", strategy);
    json_object_foreach(p->sent, axes, bytes)
    {
        tg_strbuf_printf(out, "%s%s along %s", first ? "  sent by this rank in a step: " : ", ",
                         tg_format_bytes(text, json_real_value(bytes) / (double)p->n_steps), axes);
        first = false;
    }
    if (!first) tg_strbuf_puts(out, "\n");
}

static void put_split(const tg_profile *p, tg_strbuf *out)
{
    const double host =
        p->part[TG_PROFILE_EVALUATION] + p->part[TG_PROFILE_CHECKPOINT] + p->part[TG_PROFILE_BOOKS];
    tg_strbuf_puts(out, "\nstep\n");
    for (int i = TG_PROFILE_FORWARD; i <= TG_PROFILE_UPDATE; i++)
        put_line(out, tg_profile_part_name((tg_profile_part)i), p->part[i], p, "operators");
    put_line(out, "data", p->part[TG_PROFILE_DATA], p, "waiting for the batch");
    put_line(out, "host", host, p, "evaluation, checkpoints, metrics and console");
    if (p->messages > 0)
        put_line(out, "messages", p->messages, p, "waiting for other ranks, outside of operators");
    put_line(out, "gaps", p->gaps, p, "between operators");
    put_line(out, "sum", p->wall, p, "");
    if (p->aside > 0)
        tg_strbuf_printf(out, "  beside it, on a thread of its own: %.3f ms of metrics and console\n",
                         1e3 * p->aside / (double)p->n_steps);
    put_communication(p, out);
    if (p->cpu_seconds < 0) return;
    const double busy = p->cpu_seconds / p->wall;
    tg_strbuf_printf(out, "  threads: %.2f of %d busy on average%s\n", busy, p->machine.threads,
                     busy < 0.7 * p->machine.threads
                         ? ": other programs use these cores, or operators are too small for all threads"
                         : " (CPU time over time: a thread that waits for work in a loop counts as busy)");
}

static void put_rates(const tg_profile *p, const group *g, tg_strbuf *out)
{
    tg_strbuf_printf(out, " %7.0f %10.3f %6.1f %9.1f %8.1f %10.0f  %s\n", g->calls / (double)p->n_steps,
                     1e3 * g->seconds / (double)p->n_steps, percent(g->seconds, p->wall),
                     g->seconds > 0 ? 1e-9 * g->flops / g->seconds : 0,
                     g->seconds > 0 ? 1e-9 * g->bytes / g->seconds : 0, percent(g->attainable, g->seconds),
                     2 * g->memory > g->seconds ? "memory" : "compute");
}

static void put_table(const tg_profile *p, const groups *all, const char *what, bool parts, tg_strbuf *out)
{
    int width = (int)strlen(what);
    for (size_t i = 0; i < all->len; i++)
        if ((int)strlen(all->data[i].name) > width) width = (int)strlen(all->data[i].name);
    tg_strbuf_printf(out, "\n%-*s%s   calls    ms/step      %%   GFLOP/s     GB/s  attained %%  bound by\n",
                     width, what, parts ? "  phase   " : "");
    for (size_t i = 0; i < all->len; i++) {
        tg_strbuf_printf(out, "%-*s", width, all->data[i].name);
        if (parts) tg_strbuf_printf(out, "  %-8s", all->data[i].part);
        put_rates(p, &all->data[i], out);
    }
}

void tg_profile_report(const tg_profile *p, tg_strbuf *out)
{
    const tg_profile_machine *m = &p->machine;
    const losses l = find_losses(p);
    groups operators = by_operator(p), layers = by_layer(p);
    char hint[256];
    const double ideal = ideal_of(p), steps = (double)p->n_steps;
    tg_strbuf_printf(out, "steps %lld to %lld, %.3f ms each, on %s, %d thread%s\n", (long long)p->first_step,
                     (long long)p->last_step, 1e3 * p->wall / steps, m->device, m->threads,
                     m->threads == 1 ? "" : "s");
    tg_strbuf_printf(out, "peak  f32 %.1f GFLOP/s, bf16 %.1f GFLOP/s%s, memory %.1f GB/s (measured)\n",
                     1e-9 * m->f32_flops, 1e-9 * m->bf16_flops, m->bf16_flops > 0 ? "" : " (not native)",
                     1e-9 * m->bytes_per_s);
    put_split(p, out);
    put_table(p, &operators, "operator", true, out);
    put_table(p, &layers, "layer", false, out);
    tg_strbuf_puts(out,
                   "attained: the least time by peak and memory's rate, as a share of the time taken; above "
                   "100 where operands lie in a cache\n");
    tg_strbuf_printf(
        out, "\nAt the peak this step's operations would take %.3f ms, %.1f %% of it. The largest losses:\n",
        1e3 * ideal / steps, percent(ideal, p->wall));
    for (int i = 0; i < l.n && i < LOSSES; i++)
        tg_strbuf_printf(out, "%d. %s: %.3f ms, %.1f %% of the step\n   %s\n", i + 1, l.list[i].what,
                         1e3 * l.list[i].seconds, percent(l.list[i].seconds * steps, p->wall),
                         l.list[i].suggestion);
    hint_of(p, hint, sizeof hint);
    if (*hint) tg_strbuf_printf(out, "Beyond the peak in use: %s\n", hint);
    tg_vec_free(&operators);
    tg_vec_free(&layers);
}

/* ---- JSON ---- */
static json_t *groups_json(const tg_profile *p, const groups *all, const char *name)
{
    json_t *list = json_array();
    const double steps = (double)p->n_steps;
    for (size_t i = 0; i < all->len; i++) {
        const group *g = &all->data[i];
        json_t *row =
            json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", name, g->name, "calls", g->calls / steps,
                      "seconds", g->seconds / steps, "share", g->seconds / p->wall, "gflop_per_s",
                      g->seconds > 0 ? 1e-9 * g->flops / g->seconds : 0.0, "gb_per_s",
                      g->seconds > 0 ? 1e-9 * g->bytes / g->seconds : 0.0, "attained",
                      g->seconds > 0 ? g->attainable / g->seconds : 0.0, "bound",
                      2 * g->memory > g->seconds ? "memory" : "compute");
        if (*g->part) json_object_set_new(row, "phase", json_string(g->part));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *losses_json(const tg_profile *p)
{
    json_t *list = json_array();
    const losses l = find_losses(p);
    for (int i = 0; i < l.n && i < LOSSES; i++)
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:s}", "loss", l.list[i].what, "seconds",
                                              l.list[i].seconds, "share",
                                              l.list[i].seconds * (double)p->n_steps / p->wall, "suggestion",
                                              l.list[i].suggestion));
    return list;
}

/* Of a step. */
static json_t *sent_json(const tg_profile *p)
{
    json_t *out = json_object(), *bytes;
    const char *axes;
    json_object_foreach(p->sent, axes, bytes)
        json_object_set_new(out, axes, json_real(json_real_value(bytes) / (double)p->n_steps));
    return out;
}

json_t *tg_profile_report_json(const tg_profile *p)
{
    const tg_profile_machine *m = &p->machine;
    const double steps = (double)p->n_steps;
    groups operators = by_operator(p), layers = by_layer(p);
    json_t *parts = json_object();
    for (int i = 0; i < TG_PROFILE_PARTS; i++)
        json_object_set_new(parts, tg_profile_part_name((tg_profile_part)i), json_real(p->part[i] / steps));
    json_object_set_new(parts, "messages", json_real(p->messages / steps));
    json_object_set_new(parts, "gaps", json_real(p->gaps / steps));
    json_t *root =
        json_pack("{s:[I,I], s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:{s:s, s:i, s:f, s:f, s:f}, s:o, s:o, s:o}",
                  "steps", (json_int_t)p->first_step, (json_int_t)p->last_step, "steps_measured",
                  (json_int_t)p->n_steps, "step_seconds", p->wall / steps, "peak_seconds",
                  ideal_of(p) / steps, "threads_busy", p->cpu_seconds >= 0 ? p->cpu_seconds / p->wall : -1.0,
                  "communication_seconds", p->communicated / steps, "communication_hidden_share",
                  hidden_percent(p) / 100, "parts", parts, "machine", "device", m->device, "threads",
                  m->threads, "f32_flops_per_s", m->f32_flops, "bf16_flops_per_s", m->bf16_flops,
                  "bytes_per_s", m->bytes_per_s, "operators", groups_json(p, &operators, "operator"),
                  "layers", groups_json(p, &layers, "layer"), "losses", losses_json(p));
    if (root && p->communicated > 0) json_object_set_new(root, "sent_bytes", sent_json(p));
    char hint[256];
    hint_of(p, hint, sizeof hint);
    if (root && *hint) json_object_set_new(root, "hint", json_string(hint));
    tg_vec_free(&operators);
    tg_vec_free(&layers);
    return root;
}
