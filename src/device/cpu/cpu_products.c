/*
 * The list of products and their ways, its measuring, and its file in the user's cache folder. Products are
 * few (15 in a step of GPT-2), so the list is searched from the front.
 */
#include "device/cpu_products.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/vec.h"
#include "device/cpu/cpu_cache.h"
#include "device/cpu_info.h"
#include "tensor/desc.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define RUN_SECONDS 0.025 /* of one run, about */
#define HOPELESS 1.15     /* × the best: not run again */
#define GAIN 0.97         /* × the time by sizes: worth another way */
enum { ROUNDS = 3, SETS = 3 };

static TG_VEC(tg_product) list;
static int64_t noting;

/* What tells products from each other, as members of JSON. */
static const struct {
    const char *name;
    size_t at;
} numbers[] = {{"m", offsetof(tg_gemm_spec, m)},     {"n", offsetof(tg_gemm_spec, n)},
               {"k", offsetof(tg_gemm_spec, k)},     {"batch", offsetof(tg_gemm_spec, batch)},
               {"lda", offsetof(tg_gemm_spec, lda)}, {"ldb", offsetof(tg_gemm_spec, ldb)},
               {"ldc", offsetof(tg_gemm_spec, ldc)}},
  flags[] = {{"trans_a", offsetof(tg_gemm_spec, trans_a)},
             {"trans_b", offsetof(tg_gemm_spec, trans_b)},
             {"bias", offsetof(tg_gemm_spec, bias)},
             {"accumulate", offsetof(tg_gemm_spec, accumulate)},
             {"packed_b", offsetof(tg_gemm_spec, packed_b)}};
enum { NUMBERS = sizeof numbers / sizeof *numbers, FLAGS = sizeof flags / sizeof *flags };

static int64_t *number(const tg_gemm_spec *s, int i)
{
    return (int64_t *)(void *)((char *)(uintptr_t)s + numbers[i].at);
}

static bool *flag(const tg_gemm_spec *s, int i)
{
    return (bool *)((char *)(uintptr_t)s + flags[i].at);
}

static tg_product *find(const tg_gemm_spec *s)
{
    for (size_t p = 0; p < list.len; p++) {
        const tg_gemm_spec *own = &list.data[p].spec;
        bool same = own->a == s->a && own->c == s->c;
        for (int i = 0; same && i < NUMBERS; i++)
            same = *number(own, i) == *number(s, i);
        for (int i = 0; same && i < FLAGS; i++)
            same = *flag(own, i) == *flag(s, i);
        if (same) return &list.data[p];
    }
    return NULL;
}

void tg_products_clear(void)
{
    tg_vec_free(&list);
    noting = 0;
}

void tg_products_note(int64_t times)
{
    for (size_t i = 0; !noting && i < list.len; i++)
        list.data[i].times = 0;
    noting = times;
}

size_t tg_products_count(void)
{
    return list.len;
}

const tg_product *tg_products_at(size_t i)
{
    return &list.data[i];
}

tg_gemm_way tg_products_way(const tg_product *product)
{
    const tg_gemm_way way = product->spec.way;
    return way != TG_GEMM_BY_SIZES && tg_gemm_can(&product->spec, way) ? way
                                                                       : tg_gemm_by_sizes(&product->spec);
}

tg_gemm_way tg_products_find(const tg_gemm_spec *spec)
{
    tg_product *p = list.len ? find(spec) : NULL;
    if (!p && noting) {
        tg_product fresh = {.spec = *spec};
        fresh.spec.way = TG_GEMM_BY_SIZES;
        if (tg_vec_push(&list, fresh)) p = &list.data[list.len - 1];
        teng_error_clear(); /* without memory it goes by sizes */
    }
    if (p) p->times += noting;
    return p ? p->spec.way : TG_GEMM_BY_SIZES;
}

/* ---- measuring ---- */
typedef struct trial {
    tg_gemm_spec spec;
    int sets; /* of operands, used by turns so that caches hold none of them */
    char *memory, *packed, *scratch;
    size_t at[4], set_bytes; /* A, B, C, the end */
    float *bias;
    tg_gemm_plan *plans[TG_GEMM_WAYS];
    double seconds[TG_GEMM_WAYS][ROUNDS], median[TG_GEMM_WAYS];
    bool alive[TG_GEMM_WAYS];
} trial;

/* Sides are halved, the longest first, until a run is short. */
static void cut(tg_gemm_spec *s, double flops)
{
    while (2.0 * (double)s->m * (double)s->n * (double)s->k > flops) {
        int64_t *longest = s->m >= s->n && s->m >= s->k ? &s->m : s->n >= s->k ? &s->n : &s->k;
        *longest = (*longest + 1) / 2;
    }
}

static size_t align(size_t bytes)
{
    return (bytes + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
}

/* Small numbers of both signs everywhere. */
static void fill(teng_dtype dtype, char *data, size_t bytes)
{
    enum { PATTERN = 1021 };
    const size_t first = PATTERN * (size_t)teng_dtype_size(dtype);
    for (int64_t i = 0; i < PATTERN && (size_t)(i + 1) * first / PATTERN <= bytes; i++)
        tg_store_double(dtype, data, i, (double)(i * 7 % 13) / 8 - 0.75);
    for (size_t done = first; done < bytes; done += first)
        memcpy(data + done, data, bytes - done < first ? bytes - done : first);
}

static teng_status make_operands(trial *t, uint64_t cache_bytes)
{
    const tg_gemm_spec *s = &t->spec;
    const size_t in = (size_t)teng_dtype_size(s->a), out = (size_t)teng_dtype_size(s->c);
    t->at[1] = align((size_t)((s->trans_a ? s->k : s->m) * s->lda) * in);
    t->at[2] = t->at[1] + align((size_t)((s->trans_b ? s->n : s->k) * s->ldb) * in);
    t->at[3] = t->set_bytes = t->at[2] + align((size_t)(s->m * s->ldc) * out);
    t->sets = t->set_bytes < cache_bytes ? SETS : 1;
    t->memory = tg_alloc_aligned(t->set_bytes * (size_t)t->sets);
    t->bias = tg_alloc_aligned((size_t)s->n * sizeof *t->bias);
    if (!t->memory || !t->bias) return TENG_MEMORY;
    for (int i = 0; i < t->sets; i++) {
        char *set = t->memory + (size_t)i * t->set_bytes;
        fill(s->a, set, t->at[2]);
        fill(s->c, set + t->at[2], t->at[3] - t->at[2]);
    }
    fill(TENG_F32, (char *)t->bias, (size_t)s->n * sizeof *t->bias);
    return TENG_OK;
}

/* A plan for each way that can be gone. */
static teng_status make_plans(trial *t)
{
    size_t scratch = TG_ALIGN;
    for (int way = 1; way < TG_GEMM_WAYS; way++) {
        tg_gemm_spec s = t->spec;
        s.way = (tg_gemm_way)way;
        if (!tg_gemm_can(&s, s.way)) continue;
        t->alive[way] = tg_gemm_plan_create(&s, &t->plans[way]) == TENG_OK;
        teng_error_clear();
        if (t->alive[way] && tg_gemm_scratch(t->plans[way]) > scratch)
            scratch = tg_gemm_scratch(t->plans[way]);
    }
    t->scratch = tg_alloc_aligned(scratch);
    if (!t->scratch) return TENG_MEMORY;
    if (!t->alive[TG_GEMM_PACKED]) return TENG_OK;
    t->packed = tg_alloc_aligned(tg_gemm_packed(t->plans[TG_GEMM_PACKED]));
    if (!t->packed) return TENG_MEMORY;
    return tg_gemm_pack(t->plans[TG_GEMM_PACKED], t->memory + t->at[1], t->packed);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static teng_status run_rounds(trial *t)
{
    int turn = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double best = 1e30;
        for (int way = 1; way < TG_GEMM_WAYS; way++) {
            if (!t->alive[way]) continue;
            char *set = t->memory + (size_t)(turn++ % t->sets) * t->set_bytes;
            const double begin = tg_clock_seconds();
            TG_TRY(tg_gemm_run(t->plans[way], set, way == TG_GEMM_PACKED ? t->packed : set + t->at[1],
                               t->bias, set + t->at[2], t->scratch));
            t->seconds[way][round] = tg_clock_seconds() - begin;
            if (t->seconds[way][round] < best) best = t->seconds[way][round];
        }
        for (int way = 1; way < TG_GEMM_WAYS; way++)
            if (t->alive[way] && t->seconds[way][round] > HOPELESS * best &&
                way != (int)tg_gemm_by_sizes(&t->spec))
                t->alive[way] = false;
    }
    for (int way = 1; way < TG_GEMM_WAYS; way++) {
        qsort(t->seconds[way], ROUNDS, sizeof(double), ascending);
        t->median[way] = t->seconds[way][ROUNDS / 2];
    }
    return TENG_OK;
}

static void choose(const trial *t, tg_product *p)
{
    const int usual = (int)tg_gemm_by_sizes(&t->spec);
    if (!t->alive[usual]) return;
    int best = usual;
    for (int way = 1; way < TG_GEMM_WAYS; way++)
        if (t->alive[way] && t->median[way] < GAIN * t->median[usual] && t->median[way] < t->median[best])
            best = way;
    p->spec.way = (tg_gemm_way)best;
    p->gflops = 2e-9 * (double)t->spec.m * (double)t->spec.n * (double)t->spec.k / t->median[best];
}

static teng_status measure(tg_product *p, double flops, uint64_t cache_bytes)
{
    trial t = {.spec = p->spec};
    cut(&t.spec, flops);
    teng_status status = make_operands(&t, cache_bytes);
    if (status == TENG_OK) status = make_plans(&t);
    if (status == TENG_OK) status = run_rounds(&t);
    if (status == TENG_OK) choose(&t, p);
    for (int way = 0; way < TG_GEMM_WAYS; way++)
        tg_gemm_plan_destroy(&t.plans[way]);
    tg_free_aligned(t.memory);
    tg_free_aligned(t.bias);
    tg_free_aligned(t.packed);
    tg_free_aligned(t.scratch);
    return status;
}

teng_status tg_products_measure(int *measured)
{
    tg_cpu_info info;
    tg_cpu_peak peak;
    *measured = 0;
    const int64_t noted = noting;
    noting = 0;
    TG_TRY(tg_cpu_measure_peak(false, &peak));
    tg_cpu_info_get(&info);
    for (size_t i = 0; i < list.len; i++) {
        tg_product *p = &list.data[i];
        if (p->spec.way != TG_GEMM_BY_SIZES || p->spec.batch > 1) continue;
        const double rate =
            p->spec.a == TENG_BF16 && peak.bf16_gflops > 0 ? peak.bf16_gflops : peak.f32_gflops;
        const teng_status status = measure(p, rate * 1e9 * RUN_SECONDS, info.l3_bytes);
        if (status != TENG_OK && status != TENG_MEMORY) return status;
        if (status == TENG_MEMORY) teng_error_clear();
        *measured += status == TENG_OK;
    }
    noting = noted;
    return TENG_OK;
}

/* ---- JSON ---- */
json_t *tg_product_json(const tg_product *p)
{
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:f}", "factors", teng_dtype_name(p->spec.a), "result",
                  teng_dtype_name(p->spec.c), "way", tg_gemm_way_name(p->spec.way), "gflops", p->gflops);
    for (int i = 0; out && i < NUMBERS; i++)
        json_object_set_new(out, numbers[i].name, json_integer(*number(&p->spec, i)));
    for (int i = 0; out && i < FLAGS; i++)
        json_object_set_new(out, flags[i].name, json_boolean(*flag(&p->spec, i)));
    return out;
}

json_t *tg_products_json(bool chosen)
{
    char version[32];
    json_t *products = json_array();
    for (size_t i = 0; i < list.len; i++)
        if (!chosen || list.data[i].spec.way != TG_GEMM_BY_SIZES)
            json_array_append_new(products, tg_product_json(&list.data[i]));
    return json_pack("{s:s, s:o}", "gemm", tg_gemm_version(version), "products", products);
}

static bool parse_dtype(const char *name, teng_dtype *out)
{
    static const teng_dtype known[] = {TENG_F32, TENG_BF16, TENG_F16};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(teng_dtype_name(known[i]), name) == 0) {
            *out = known[i];
            return true;
        }
    return false;
}

static teng_status parse(const json_t *json, const char *where, tg_product *p)
{
    const char *a, *c, *name;
    int way = 0;
    *p = (tg_product){0};
    TG_TRY(tg_json_get_string(json, where, "factors", true, &a));
    TG_TRY(tg_json_get_string(json, where, "result", true, &c));
    TG_TRY(tg_json_get_string(json, where, "way", true, &name));
    TG_TRY(tg_json_get_real(json, where, "gflops", true, &p->gflops));
    for (int i = 0; i < NUMBERS; i++)
        TG_TRY(tg_json_get_int(json, where, numbers[i].name, true, number(&p->spec, i)));
    for (int i = 0; i < FLAGS; i++)
        TG_TRY(tg_json_get_bool(json, where, flags[i].name, true, flag(&p->spec, i)));
    while (way < TG_GEMM_WAYS && strcmp(tg_gemm_way_name((tg_gemm_way)way), name) != 0)
        way++;
    if (way == TG_GEMM_WAYS)
        return tg_fail(TENG_INVALID, "%s: \"%s\" is no way of a product that this teng knows", where, name);
    const bool dtypes = parse_dtype(a, &p->spec.a) && parse_dtype(c, &p->spec.c);
    p->spec.b = p->spec.a;
    p->spec.way = (tg_gemm_way)way;
    const char *wrong = dtypes ? tg_gemm_refuse(&p->spec) : "its dtypes are not those of products";
    return wrong ? tg_fail(TENG_INVALID, "%s: %s", where, wrong) : TENG_OK;
}

teng_status tg_products_take(const json_t *json, const char *where, bool all)
{
    const json_t *products = json_object_get(json, "products");
    tg_product p;
    if (!json_is_array(products)) return tg_fail(TENG_INVALID, "%s: it has no list \"products\"", where);
    for (size_t i = 0; i < json_array_size(products); i++)
        TG_TRY(parse(json_array_get(products, i), where, &p));
    for (size_t i = 0; i < json_array_size(products); i++) {
        TG_TRY(parse(json_array_get(products, i), where, &p));
        tg_product *own = find(&p.spec);
        if (!own && all && !tg_vec_push(&list, p)) return TENG_MEMORY;
        if (own && own->spec.way == TG_GEMM_BY_SIZES) {
            own->spec.way = p.spec.way;
            own->gflops = p.gflops;
        }
    }
    return TENG_OK;
}

char *tg_products_cache_path(void)
{
    return tg_cpu_cache_path("products", omp_get_max_threads());
}

teng_status tg_products_load(const char *path, bool all)
{
    char version[32];
    const char *wrote;
    json_t *json = NULL;
    if (!tg_path_exists(path)) return TENG_OK;
    teng_status status = tg_json_load_file(path, &json);
    if (status == TENG_OK) status = tg_json_get_string(json, path, "gemm", true, &wrote);
    if (status == TENG_OK && strcmp(wrote, tg_gemm_version(version)) != 0)
        status = tg_fail(TENG_INVALID, "%s was measured with %s, and this is %s", path, wrote, version);
    if (status == TENG_OK) status = tg_products_take(json, path, all);
    json_decref(json);
    return status;
}

teng_status tg_products_save(const char *path)
{
    json_t *json = tg_products_json(true);
    const teng_status status = json ? tg_cpu_cache_save(path, json) : TENG_MEMORY;
    json_decref(json);
    return status;
}
