/*
 * What each lever buys on this machine: two trainings that differ in one setting make steps in turn. Beside
 * it what the article that the project starts from claims, which names no model, batch or baseline. Levers of
 * a step go through bench_step.c, those of the loop around it through bench_loop.c.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "device/cpu_gemm.h"
#include "device/cpu_info.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct lever {
    const char *name;
    /* Baseline, with: keys that are set; "%" is filled in by fill(). None with: it needs several ranks. */
    const char *words[2][3];
    bool loop; /* of the loop, not of a step */
    const char *article, *note;
} lever;

#define MIXED "the article: +200 % (elsewhere 2 to 3 times), half of the memory"
#define NEEDS_RANKS "These measurements run in one process, which is one rank."
#define LOOP_NOTE "run's own loop and metrics.jsonl, no console"
static const lever levers[] = {
    {"graph",
     {{"context.mode=pynative"}, {"context.mode=graph"}},
     false,
     "the article: +80 % (elsewhere 50 to 200 %)",
     "On a CPU an operator is called, not launched on a device: what a graph saves is calls, allocation and "
     "fused operators, some milliseconds a step, small beside large products. Its plan saves memory too."},
    {"fusion",
     {{"graph.passes=[]"}, {"graph.passes=[default]"}},
     false,
     "the article: no figure apart from static graphs",
     "All passes over the graph, fusion among them. On a CPU a fused operator saves one pass over values "
     "that "
     "are often still in a cache."},
    {"bf16",
     {{"precision.level=O0"}, {"precision.level=O2", "precision.dtype=bf16"}},
     false,
     MIXED,
     "Products run in 16 bits; sums, weights and the update stay in f32. Weights are cast each step, which "
     "small batches do not repay. Memory: activations halve, parameters and optimizer states do not."},
    {"fp16",
     {{"precision.level=O0"}, {"precision.level=O2", "precision.dtype=fp16"}},
     false,
     MIXED,
     "As bf16, with a loss scale."},
    {"sink",
     {{"data.sink=false"}, {"data.sink=true", "data.sink_size=%"}},
     true,
     "the article: +60 %",
     "Measured in the " LOOP_NOTE
     ". A CPU computes in the memory that batches lie in: no copy to a device, no "
     "return to the host is saved, only the writing of metrics between steps."},
    {"prefetch",
     {{"data.prefetch=0"}, {"data.prefetch=4"}},
     true,
     "the article: no figure apart from the data sink",
     "Measured in the " LOOP_NOTE
     ". A batch of a token file is a copy of some KiB; its thread uses the cores "
     "that compute. It pays where making a batch takes long."},
    {"recompute_selective",
     {{"memory.recompute=none"}, {"memory.recompute=selective"}},
     false,
     "the article: 40 % of memory saved",
     "Time is paid for memory: a speedup below 1 is the price. The share grows with batch and length; "
     "parameters and optimizer states stay."},
    {"recompute_full",
     {{"memory.recompute=none"}, {"memory.recompute=full"}},
     false,
     "the article: 40 % of memory saved",
     "As selective: one forward pass more, for nearly all activations."},
    {"accumulation",
     {{"train.micro_batches=%"}, {"train.micro_batches=4%"}},
     false,
     "the article: no figure",
     "Four times as many pieces: activations fall to a quarter, a sum of gradients is added, products are "
     "smaller."},
    {"offload",
     {{"memory.offload=none"}, {"memory.offload=optimizer", "offload.path=%"}},
     false,
     "the article: no figure (enable_memory_offload)",
     "Optimizer states lie on disk and are read and written each step: the price is the disk's. Worth it "
     "only where memory is short."},
    {"offload_parameters",
     {{"memory.offload=none"}, {"memory.offload=parameters", "offload.path=%"}},
     false,
     "the article: no figure (enable_memory_offload)",
     "Parameters are read for forward, for backward and for the update: hidden behind products of many "
     "tokens, "
     "not here."},
    {"offload_activations",
     {{"memory.offload=none"}, {"memory.offload=activations", "offload.path=%"}},
     false,
     "the article: no figure (enable_memory_offload)",
     "What backward needs is written in forward and read again: full recompute saves more for less, where a "
     "core has to move the bytes."},
    {"threads",
     {{"context.threads=1"}, {"context.threads=0"}},
     false,
     "the article: no figure apart from several cards",
     "Threads of one process, which is what one machine has."},
    {"parallel",
     {{NULL}, {NULL}},
     false,
     "the article: +350 % (automatic parallel on several cards)",
     "Training on 1 against n ranks. " NEEDS_RANKS},
    {"comm_fusion",
     {{NULL}, {NULL}},
     false,
     "the article: no figure (communication_fusion)",
     "Gradients of many parameters in one call, beside the backward pass. " NEEDS_RANKS},
    {"zero",
     {{NULL}, {NULL}},
     false,
     "the article: no figure (enable_parallel_optimizer)",
     "Bytes saved on each rank by sharing out optimizer states. " NEEDS_RANKS},
};
enum { LEVERS = sizeof levers / sizeof *levers, WORD = 512 };

/* ---- one side: a training with the lever up or down ---- */
typedef struct side {
    tg_config *cfg;
    tg_bench_step *step; /* one of the two */
    tg_bench_loop *loop;
    char words[2 * WORD];
    TG_VEC(double) seconds; /* of a step */
} side;

typedef struct bench {
    const tg_bench_levers_options *options;
    const char *model; /* path, "middle" or NULL */
    char *dir;         /* heap; removed at the end */
    int64_t chunk;     /* steps of the loop between two looks at the clock */
    int64_t micro_batches;
    int64_t folders;
} bench;

static void close_side(side *s)
{
    tg_bench_step_close(&s->step);
    tg_bench_loop_close(&s->loop);
    tg_config_destroy(&s->cfg);
    tg_vec_free(&s->seconds);
}

/* A word whose "%" stands for what is known only now. */
static void fill(const bench *b, const char *word, char *out)
{
    if (strcmp(word, "data.sink_size=%") == 0)
        snprintf(out, WORD, "data.sink_size=%lld", (long long)b->chunk);
    else if (strcmp(word, "train.micro_batches=%") == 0)
        snprintf(out, WORD, "train.micro_batches=%lld", (long long)b->micro_batches);
    else if (strcmp(word, "train.micro_batches=4%") == 0)
        snprintf(out, WORD, "train.micro_batches=%lld", (long long)(4 * b->micro_batches));
    else if (strcmp(word, "offload.path=%") == 0)
        snprintf(out, WORD, "offload.path=%.490s", b->dir);
    else
        snprintf(out, WORD, "%s", word);
}

static teng_status configure(bench *b, const char *const *words, side *s)
{
    bool misused;
    TG_TRY(tg_bench_config(b->model, b->options->words, b->options->n_words, &misused, &s->cfg));
    for (int i = 0; i < 3 && words[i]; i++) {
        char word[WORD];
        fill(b, words[i], word);
        const size_t at = strlen(s->words);
        snprintf(s->words + at, sizeof s->words - at, "%s%s", i > 0 ? " " : "", word);
        char *value = strchr(word, '=');
        *value++ = 0;
        TG_TRY(tg_config_set(s->cfg, word, value));
    }
    return tg_config_check(s->cfg, 1);
}

static teng_status open_side(bench *b, const lever *l, int which, side *s)
{
    TG_TRY(configure(b, l->words[which], s));
    if (!l->loop) return tg_bench_step_open(s->cfg, &s->step);
    char *dir = tg_asprintf("%s/%lld", b->dir, (long long)b->folders++);
    const teng_status status = dir ? tg_bench_loop_open(s->cfg, dir, &s->loop) : TENG_MEMORY;
    tg_free(dir);
    return status;
}

/* The first step makes what later ones use, and a dynamic loss scale falls until gradients are finite. */
static teng_status warm_up(const bench *b, side *s)
{
    if (s->loop) return tg_bench_loop_run(s->loop, b->chunk);
    for (int i = 0, dropped = -1; i < 40 && (int)tg_bench_step_get(s->step).dropped != dropped; i++) {
        dropped = (int)tg_bench_step_get(s->step).dropped;
        TG_TRY(tg_bench_step_run(s->step, 1, false));
    }
    return TENG_OK;
}

static teng_status sample(const bench *b, side *s)
{
    const int64_t n = s->loop ? b->chunk : 1;
    const double begin = tg_clock_seconds();
    TG_TRY(s->loop ? tg_bench_loop_run(s->loop, n) : tg_bench_step_run(s->step, n, false));
    return tg_vec_push(&s->seconds, (tg_clock_seconds() - begin) / (double)n) ? TENG_OK : TENG_MEMORY;
}

/* Steps in turn. */
static teng_status take_turns(const bench *b, side *base, side *with)
{
    const double begin = tg_clock_seconds();
    TG_TRY(warm_up(b, base));
    TG_TRY(warm_up(b, with));
    for (int64_t i = 0; i < b->options->steps || tg_clock_seconds() - begin < b->options->seconds; i++) {
        TG_TRY(sample(b, base));
        TG_TRY(sample(b, with));
    }
    return TENG_OK;
}

/* So many steps that a look at the clock and the end of a sink cost little: a fifth of a second. */
static teng_status choose_chunk(bench *b)
{
    side s = {0};
    teng_status status = configure(b, (const char *const[3]){NULL}, &s);
    if (status == TENG_OK) status = tg_bench_step_open(s.cfg, &s.step);
    b->chunk = 1;
    if (status == TENG_OK) status = tg_bench_step_run(s.step, 1, false);
    if (status == TENG_OK) status = sample(b, &s);
    if (status == TENG_OK) {
        b->chunk = (int64_t)fmin(fmax(0.2 / s.seconds.data[0], 3), 32);
        b->micro_batches = s.cfg->train.micro_batches;
    }
    close_side(&s);
    return status;
}

/* ---- answers ---- */
static json_t *side_json(const side *s, tg_bench_stat ms)
{
    json_t *o = json_pack("{s:s, s:o}", "words", s->words, "step_ms", tg_bench_stat_json(ms));
    json_object_set_new(o, "memory_bytes",
                        s->step ? json_integer((json_int_t)tg_bench_step_bytes(s->step)) : json_null());
    return o;
}

static tg_bench_stat in_ms(const side *s)
{
    const tg_bench_stat t = tg_bench_stat_of(s->seconds.data, (int64_t)s->seconds.len);
    return (tg_bench_stat){t.median * 1e3, t.min * 1e3, t.max * 1e3, t.n};
}

/* What the machine lacks, before what is to be said in any case. */
static const char *before_note(const lever *l)
{
    tg_cpu_info info;
    tg_cpu_info_get(&info);
    if (strcmp(l->name, "bf16") == 0 && !tg_gemm_native(TENG_BF16))
        return "This CPU has no bf16 products: they are computed by f32 ones. ";
    if (strcmp(l->name, "fp16") == 0 && !tg_gemm_native(TENG_F16))
        return "This CPU has no fp16 products: they are computed by f32 ones. ";
    if (strcmp(l->name, "threads") == 0 && info.cores == 1) return "This machine has one core. ";
    return "";
}

static json_t *row(const bench *b, const lever *l, side *base, side *with)
{
    const int64_t n = (int64_t)base->seconds.len;
    double *pairs = tg_alloc((size_t)n * sizeof *pairs);
    if (!pairs) return NULL;
    for (int64_t i = 0; i < n; i++)
        pairs[i] = base->seconds.data[i] / with->seconds.data[i];
    const tg_bench_stat ratio = tg_bench_stat_of(pairs, n), x = in_ms(base), y = in_ms(with);
    tg_free(pairs);
    json_t *memory =
        base->step
            ? json_real((double)tg_bench_step_bytes(with->step) / (double)tg_bench_step_bytes(base->step))
            : json_null();
    char note[WORD * 2];
    snprintf(note, sizeof note, "%s%s", before_note(l), l->note);
    return json_pack("{s:s, s:s, s:o, s:o, s:f, s:o, s:o, s:s, s:s}", "name", l->name, "model",
                     b->model ? b->model : "default", "baseline", side_json(base, x), "with",
                     side_json(with, y), "speedup", x.median / y.median, "speedup_pairs",
                     tg_bench_stat_json(ratio), "memory_ratio", memory, "article", l->article, "note", note);
}

/* This configuration, or this machine, does not have the lever: said, not hidden. */
static json_t *row_without(const bench *b, const lever *l)
{
    char note[WORD * 4];
    snprintf(note, sizeof note, "Not measured: %s", !l->words[1][0] ? l->note : teng_error());
    teng_error_clear();
    return json_pack("{s:s, s:s, s:n, s:n, s:n, s:n, s:n, s:s, s:s}", "name", l->name, "model",
                     b->model ? b->model : "default", "baseline", "with", "speedup", "speedup_pairs",
                     "memory_ratio", "article", l->article, "note", note);
}

static teng_status pull(bench *b, const lever *l, json_t *list)
{
    side base = {0}, with = {0};
    teng_status status = !l->words[1][0] ? TENG_UNSUPPORTED : TENG_OK;
    if (status == TENG_OK && b->options->progress) b->options->progress(b->options->user, l->name);
    if (status == TENG_OK) status = open_side(b, l, 0, &base);
    if (status == TENG_OK) status = open_side(b, l, 1, &with);
    if (status == TENG_OK) status = take_turns(b, &base, &with);
    json_t *answer = NULL;
    if (status == TENG_OK)
        answer = row(b, l, &base, &with);
    else if (status == TENG_INVALID || status == TENG_UNSUPPORTED)
        answer = row_without(b, l);
    close_side(&base);
    close_side(&with);
    if (answer) return json_array_append_new(list, answer) == 0 ? TENG_OK : TENG_MEMORY;
    return status == TENG_OK ? TENG_MEMORY : status;
}

/* ---- all of them ---- */
static bool wanted(const tg_bench_levers_options *o, const lever *l)
{
    for (int i = 0; i < o->n_only; i++)
        if (strcmp(o->only[i], l->name) == 0) return true;
    return o->n_only == 0;
}

static teng_status check_names(const tg_bench_levers_options *o)
{
    for (int i = 0; i < o->n_only; i++) {
        bool known = false;
        tg_strbuf all = {0};
        for (int k = 0; k < LEVERS; k++) {
            known |= strcmp(o->only[i], levers[k].name) == 0;
            tg_strbuf_printf(&all, "%s%s", k ? ", " : "", levers[k].name);
        }
        if (!known)
            tg_fail(TENG_INVALID, "\"%.80s\" is no lever: there are %s", o->only[i], tg_strbuf_str(&all));
        tg_strbuf_free(&all);
        if (!known) return TENG_INVALID;
    }
    return TENG_OK;
}

static teng_status pull_all(bench *b, const char *model, json_t *list)
{
    b->model = model;
    TG_TRY(choose_chunk(b));
    for (int i = 0; i < LEVERS; i++)
        if (wanted(b->options, &levers[i])) TG_TRY(pull(b, &levers[i], list));
    return TENG_OK;
}

static teng_status measure(bench *b, json_t *list)
{
    TG_TRY(check_names(b->options));
    TG_TRY(tg_mkdirs(b->options->dir));
    b->dir = tg_path_join(b->options->dir, "teng-bench-XXXXXX");
    if (!b->dir) return TENG_MEMORY;
    if (!mkdtemp(b->dir)) {
        const teng_status status = tg_fail_errno(TENG_IO, errno, "a folder for runs in %s", b->options->dir);
        tg_free(b->dir);
        b->dir = NULL;
        return status;
    }
    TG_TRY(pull_all(b, b->options->config, list));
    return b->options->config ? TENG_OK : pull_all(b, "middle", list);
}

teng_status tg_bench_levers(const tg_bench_levers_options *options, json_t **out)
{
    bench b = {.options = options};
    json_t *list = json_array();
    teng_status status = list ? measure(&b, list) : TENG_MEMORY;
    tg_error error;
    tg_error_take(&error);
    if (b.dir && tg_remove_tree(b.dir) != TENG_OK && status == TENG_OK) {
        status = teng_error_status();
        tg_error_take(&error);
    }
    teng_error_clear();
    tg_free(b.dir);
    if (status == TENG_OK) return tg_bench_answer(json_pack("{s:o}", "levers", list), out);
    json_decref(list);
    if (error.status != TENG_OK) return tg_error_give(&error);
    return tg_fail(status, "measuring levers: out of memory");
}
