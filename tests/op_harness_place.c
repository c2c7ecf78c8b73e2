/*
 * The harness's placement checks: each rule is played through with several ranks. Inputs are cut or written
 * as sums of random parts, the reference runs on each rank's share with localized attributes, and the ranks'
 * outputs, put together as the rule says, must be the whole output.
 */
#include "op_harness_impl.h"

#include "op/op_list.h"

#include <stdio.h>
#include <string.h>

#define MAX_PARTS 13 /* ranks */

/* Elements of dimension d that belong to `rank`: copies between the whole array and the rank's part. */
static void cut(const teng_desc *whole, int d, int64_t parts, int64_t rank, double *all, double *part,
                bool out)
{
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < d; i++)
        outer *= whole->dims[i];
    for (int i = d + 1; i < whole->ndim; i++)
        inner *= whole->dims[i];
    const int64_t own = whole->dims[d] / parts * inner;
    for (int64_t k = 0; k < outer; k++) {
        double *at = all + (k * parts + rank) * own;
        if (out)
            memcpy(at, part + k * own, sizeof(double) * (size_t)own);
        else
            memcpy(part + k * own, at, sizeof(double) * (size_t)own);
    }
}

/* Whether every dimension that the rule cuts can be cut into so many parts. */
static bool divides(const hx_case *x, const tg_place_rule *rule, int64_t parts)
{
    for (int i = 0; i < x->call.n_in; i++)
        if (rule->in[i] >= 0 && x->in[i].dims[rule->in[i]] % parts != 0) return false;
    for (int o = 0; o < x->call.n_out; o++)
        if (rule->out[o] >= 0 && x->out[o].dims[rule->out[o]] % parts != 0) return false;
    return true;
}

static teng_desc shard(const teng_desc *whole, teng_place place, int64_t parts)
{
    teng_desc d = *whole;
    if (place >= 0) d.dims[place] /= parts;
    return d;
}

/* Rank's share of input i; `rest` is what the earlier ranks of a partial input left over. */
static double *share(const hx_case *x, int i, teng_place place, int64_t parts, int64_t rank, double *rest)
{
    const int64_t n = tg_desc_numel(&x->in[i]);
    char purpose[60];
    snprintf(purpose, sizeof purpose, "share %d of rank %lld", i, (long long)rank);
    double *mine = hx_normal(x, purpose, n);
    if (place >= 0) {
        cut(&x->in[i], place, parts, rank, x->in64[i], mine, false);
    } else if (place == TENG_REPLICATED || rank == parts - 1) {
        memcpy(mine, place == TENG_REPLICATED ? x->in64[i] : rest, sizeof(double) * (size_t)n);
    } else {
        for (int64_t k = 0; k < n; k++)
            rest[k] -= mine[k];
    }
    return mine;
}

/* Adds a rank's outputs to the whole ones; false and a failure line when they do not have the form the rule
 * states. */
static bool gather(hx *h, const hx_case *x, const char *rule_text, const tg_place_rule *rule, int64_t parts,
                   int64_t rank, const teng_op_call *local, double **out, double **whole)
{
    for (int o = 0; o < x->call.n_out; o++) {
        const teng_desc want = shard(&x->out[o], rule->out[o], parts);
        const int64_t n = tg_desc_numel(&want);
        if (!tg_desc_equal(&local->out[o], &want)) {
            hx_fail(h, x, "placement %s by %lld: output %d of a rank has another shape than the rule says",
                    rule_text, (long long)parts, o);
            return false;
        }
        if (rule->out[o] >= 0) {
            cut(&x->out[o], rule->out[o], parts, rank, whole[o], out[o], true);
        } else if (rule->out[o] == TENG_PARTIAL) {
            for (int64_t k = 0; k < n; k++)
                whole[o][k] += out[o][k];
        } else if (rank == 0) {
            memcpy(whole[o], out[o], sizeof(double) * (size_t)n);
        } else if (hx_distance(out[o], whole[o], n) > 1e-9) {
            hx_fail(h, x, "placement %s by %lld: ranks differ in output %d, which is said to be replicated",
                    rule_text, (long long)parts, o);
            return false;
        }
    }
    return true;
}

static void rule_print(const hx_case *x, const tg_place_rule *rule, tg_strbuf *text)
{
    for (int k = 0; k < x->call.n_in + x->call.n_out; k++) {
        const teng_place p = k < x->call.n_in ? rule->in[k] : rule->out[k - x->call.n_in];
        tg_strbuf_puts(text, k == x->call.n_in ? " -> " : k ? "," : "");
        if (p >= 0)
            tg_strbuf_printf(text, "%d", p);
        else
            tg_strbuf_putc(text, p == TENG_PARTIAL ? 'P' : 'R');
    }
}

static bool rank_run(hx *h, const hx_case *x, const char *rule_text, const tg_place_rule *rule, int64_t parts,
                     int64_t rank, double **rest, double **whole)
{
    teng_desc in[TENG_CASE_MAX_IN], out[TENG_MAX_OUT];
    double *in64[TENG_CASE_MAX_IN] = {0}, *out64[TENG_MAX_OUT] = {0};
    teng_op_call local = {.op = x->op, .n_in = x->call.n_in, .in = in, .out = out};
    void *attr = tg_calloc(1, x->op->attr_size + 1);
    if (x->op->attr_size) memcpy(attr, x->c->attr, x->op->attr_size);
    if (x->op->localize) x->op->localize(&x->call, rule->in, rule->out, parts, rank, attr);
    local.attr = x->op->attr_size ? attr : NULL;
    for (int i = 0; i < x->call.n_in; i++) {
        in[i] = shard(&x->in[i], rule->in[i], parts);
        in64[i] = share(x, i, rule->in[i], parts, rank, rest[i]);
    }
    bool ok = tg_op_infer(x->op, local.attr, x->call.n_in, in, out, &local.n_out) == TENG_OK &&
              hx_reference(x->cases, &local, (const double *const *)in64, out64) == TENG_OK;
    if (!ok)
        hx_fail(h, x, "placement %s by %lld: a rank cannot run", rule_text, (long long)parts);
    else
        ok = gather(h, x, rule_text, rule, parts, rank, &local, out64, whole);
    for (int i = 0; i < x->call.n_in; i++)
        tg_free(in64[i]);
    for (int o = 0; o < TENG_MAX_OUT; o++)
        tg_free(out64[o]);
    tg_free(attr);
    return ok;
}

static void check_rule(hx *h, const hx_case *x, const tg_place_rule *rule, int64_t parts)
{
    double *rest[TENG_CASE_MAX_IN] = {0}, *whole[TENG_MAX_OUT] = {0};
    tg_strbuf text = {0};
    rule_print(x, rule, &text);
    for (int i = 0; i < x->call.n_in; i++) {
        const size_t bytes = sizeof(double) * (size_t)tg_desc_numel(&x->in[i]);
        rest[i] = tg_alloc(bytes + 1);
        memcpy(rest[i], x->in64[i], bytes);
    }
    for (int o = 0; o < x->call.n_out; o++)
        whole[o] = tg_calloc((size_t)tg_desc_numel(&x->out[o]) + 1, sizeof(double));
    bool ok = true;
    for (int64_t rank = 0; rank < parts && ok; rank++)
        ok = rank_run(h, x, tg_strbuf_str(&text), rule, parts, rank, rest, whole);
    for (int o = 0; o < x->call.n_out && ok; o++) {
        const double distance = hx_distance(whole[o], x->out64[o], tg_desc_numel(&x->out[o]));
        if (!(distance <= 1e-8))
            hx_fail(h, x, "placement %s by %lld: output %d is %.3g from the whole one", tg_strbuf_str(&text),
                    (long long)parts, o, distance);
    }
    for (int i = 0; i < x->call.n_in; i++)
        tg_free(rest[i]);
    for (int o = 0; o < x->call.n_out; o++)
        tg_free(whole[o]);
    tg_strbuf_free(&text);
}

/* A rule may name only dimensions that exist. */
static bool rule_valid(const hx_case *x, const tg_place_rule *rule)
{
    for (int i = 0; i < x->call.n_in; i++)
        if (rule->in[i] >= x->in[i].ndim || rule->in[i] < TENG_PARTIAL) return false;
    for (int o = 0; o < x->call.n_out; o++)
        if (rule->out[o] >= x->out[o].ndim || rule->out[o] < TENG_PARTIAL) return false;
    return true;
}

/* Ranks with pieces of w tell each other what they know within the operator, so a rank's reference alone is
 * of another loss. The simulated ranks of par_sim.c hold the rule, test_collective the kernel. */
static bool ranks_talk(const hx_case *x, const tg_place_rule *rule)
{
    return x->op == &tg_op_linear_cross_entropy_by_vocabulary && rule->in[1] == 0;
}

void hx_check_place(hx *h, const hx_case *x)
{
    teng_place_rules rules;
    if (tg_place_rules_get(&x->call, &rules) != TENG_OK) {
        hx_fail(h, x, "the placement rules cannot be listed");
        return;
    }
    for (int r = 1; r < rules.n; r++) {
        const tg_place_rule *rule = &rules.rules[r];
        if (!rule_valid(x, rule)) {
            hx_fail(h, x, "placement rule %d names a dimension that is not there", r);
            continue;
        }
        if (ranks_talk(x, rule)) continue;
        int tried = 0; /* numbers of ranks: 2 and 4 where they divide the sizes, else the first that does */
        for (int64_t parts = 2; parts <= MAX_PARTS && tried < 2; parts += parts == 2 && tried ? 2 : 1) {
            if (!divides(x, rule, parts)) continue;
            check_rule(h, x, rule, parts);
            tried += parts == 2 ? 1 : 2;
        }
        h->rules_checked += tried > 0;
    }
    tg_place_rules_free(&rules);
}
