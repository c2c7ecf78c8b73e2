/*
 * The harness's gradient checks, in float64. A graph is built of the operator and a random cotangent on one
 * output, autograd appends the gradient's nodes, and all nodes are evaluated by their references; the result
 * is compared with central differences of the operator's own reference along random directions (every element
 * takes part in each). Outputs above the first may be for the gradient's own use: then the rule must refuse a
 * gradient into them.
 */
#include "op_harness_impl.h"

#include "autograd/autograd.h"
#include "teng/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEP 4e-6
#define DIRECTIONS 2

static bool wants_grad(const hx_case *x, int i)
{
    return tg_dtype_is_float(x->in[i].dtype) && !x->c->in[i].no_grad;
}

/* The operator between named values, a cotangent on output o, and the gradients. */
typedef struct net {
    tg_graph *g;
    teng_tensor *in[TENG_CASE_MAX_IN], *out[TENG_MAX_OUT], *cotangent;
    teng_tensor *grad[TENG_CASE_MAX_IN]; /* NULL: zero, or not asked for */
} net;

/* only: the one input to differentiate, -1 for all. */
static teng_status net_build(const hx_case *x, int o, int only, net *n)
{
    char name[40];
    *n = (net){.g = tg_graph_create("harness")};
    for (int i = 0; i < x->call.n_in; i++) {
        snprintf(name, sizeof name, "in%d", i);
        n->in[i] =
            wants_grad(x, i) ? tg_graph_param(n->g, name, &x->in[i]) : tg_graph_input(n->g, name, &x->in[i]);
    }
    n->cotangent = tg_graph_input(n->g, "cotangent", &x->out[o]);
    tg_node *node = tg_graph_append(n->g, x->op, x->c->attr, x->call.n_in, n->in, "", NULL, TG_FORWARD);
    if (!node) return teng_error_status();
    memcpy(n->out, node->out, sizeof(teng_tensor *) * (size_t)node->n_out);
    teng_tensor *loss =
        teng_sum(teng_cast(teng_mul(n->out[o], n->cotangent), TENG_F32), ((teng_dims){0}), false);
    if (!loss) return teng_error_status();
    teng_tensor *wrt[TENG_CASE_MAX_IN], *grad[TENG_CASE_MAX_IN];
    int from[TENG_CASE_MAX_IN], count = 0;
    for (int i = 0; i < x->call.n_in; i++) {
        if (!wants_grad(x, i) || (only >= 0 && only != i)) continue;
        from[count] = i;
        wrt[count++] = n->in[i];
    }
    TG_TRY(tg_autograd_backward(n->g, loss, NULL, wrt, count, grad));
    for (int k = 0; k < count; k++)
        n->grad[from[k]] = grad[k];
    return tg_graph_check(n->g);
}

/* Which of the operator's values the backward nodes take as operands. */
static void note_reads(hx *h, const net *n, const hx_case *x)
{
    for (size_t k = 0; k < n->g->nodes.len; k++) {
        const tg_node *node = n->g->nodes.data[k];
        if (node->phase != TG_BACKWARD) continue;
        for (int j = 0; j < node->n_in; j++) {
            for (int i = 0; i < x->call.n_in; i++)
                if (node->in[j] == n->in[i]) h->used_in |= 1u << i;
            for (int o = 0; o < x->call.n_out; o++)
                if (node->in[j] == n->out[o]) h->used_out |= 1u << o;
        }
    }
}

/* Every node by its reference; value[id] holds the inputs on entry and owned arrays of computed values after.
 */
static teng_status evaluate(const hx_case *x, const tg_graph *g, double **value)
{
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        const teng_op_cases *cases = node->op == x->op ? x->cases : tg_op_cases_find(node->op->name);
        if (!cases) return tg_fail(TENG_INVALID, "%s has no reference", node->op->name);
        teng_desc in[64], out[TENG_MAX_OUT];
        const double *in64[64];
        double *out64[TENG_MAX_OUT];
        if (node->n_in > 64) return tg_fail(TENG_INVALID, "%s has %d operands", node->op->name, node->n_in);
        const teng_op_call call = tg_node_call(node, in, out);
        for (int i = 0; i < node->n_in; i++)
            in64[i] = value[node->in[i]->id];
        const teng_status status = hx_reference(cases, &call, in64, out64);
        for (int o = 0; o < node->n_out; o++)
            value[node->out[o]->id] = out64[o];
        TG_TRY(status);
    }
    return TENG_OK;
}

/* Copies of the gradients into grad64[i] (tg_free), NULL where the rule gives none. */
static teng_status net_gradients(const hx_case *x, const net *n, double *cotangent, double **grad64)
{
    double **value = tg_calloc(n->g->values.len, sizeof(double *));
    for (int i = 0; i < x->call.n_in; i++)
        value[n->in[i]->id] = x->in64[i];
    value[n->cotangent->id] = cotangent;
    const teng_status status = evaluate(x, n->g, value);
    for (int i = 0; i < x->call.n_in && status == TENG_OK; i++) {
        const size_t bytes = sizeof(double) * (size_t)tg_desc_numel(&x->in[i]);
        if (!n->grad[i]) continue;
        grad64[i] = tg_alloc(bytes);
        memcpy(grad64[i], value[n->grad[i]->id], bytes);
    }
    for (size_t v = 0; v < n->g->values.len; v++)
        if (n->g->values.data[v]->kind == TG_VALUE_COMPUTED) tg_free(value[v]);
    tg_free(value);
    return status;
}

/* <cotangent, output o> with input i moved by step along a direction; *size sums the absolute terms. */
static double loss_at(const hx_case *x, int o, const double *cotangent, int i, const double *along,
                      double step, double *size)
{
    const double *in[TENG_CASE_MAX_IN];
    double *out[TENG_MAX_OUT], sum = 0;
    const int64_t n = tg_desc_numel(&x->in[i]);
    double *moved = tg_alloc(sizeof(double) * (size_t)(n + 1));
    for (int64_t k = 0; k < n; k++)
        moved[k] = x->in64[i][k] + step * along[k];
    for (int k = 0; k < x->call.n_in; k++)
        in[k] = k == i ? moved : x->in64[k];
    if (hx_reference(x->cases, &x->call, in, out) != TENG_OK) sum = NAN;
    *size = 0;
    for (int64_t k = 0; k < tg_desc_numel(&x->out[o]); k++) {
        sum += cotangent[k] * out[o][k];
        *size += fabs(cotangent[k] * out[o][k]);
    }
    for (int k = 0; k < x->call.n_out; k++)
        tg_free(out[k]);
    tg_free(moved);
    return sum;
}

static void check_directions(hx *h, const hx_case *x, int o, const double *cotangent, int i,
                             const double *grad)
{
    const int64_t n = tg_desc_numel(&x->in[i]);
    for (int d = 0; d < DIRECTIONS; d++) {
        char purpose[40];
        double size, dot = 0, squares = 0;
        snprintf(purpose, sizeof purpose, "direction %d.%d.%d", o, i, d);
        double *along = hx_normal(x, purpose, n);
        for (int64_t k = 0; k < n && grad; k++) {
            dot += grad[k] * along[k];
            squares += grad[k] * grad[k] * along[k] * along[k];
        }
        const double up = loss_at(x, o, cotangent, i, along, STEP, &size);
        const double down = loss_at(x, o, cotangent, i, along, -STEP, &size);
        const double slope = (up - down) / (2 * STEP), rounding = 1e-14 * size / STEP;
        if (!(fabs(slope - dot) <= 1e-6 * fmax(sqrt(squares), fabs(dot)) + rounding))
            hx_fail(h, x,
                    "gradient of output %d by input %d: the rule gives %.12g along a direction, differences "
                    "%.12g",
                    o, i, dot, slope);
        tg_free(along);
    }
}

/* Each input alone must get the same gradient as with the others. */
static void check_alone(hx *h, const hx_case *x, int o, double *cotangent, int i, const double *grad)
{
    net n;
    double *all[TENG_CASE_MAX_IN] = {0};
    const bool ready = net_build(x, o, i, &n) == TENG_OK;
    if (ready && n.grad[i] && !tg_desc_equal(&n.grad[i]->desc, &x->in[i])) n.grad[i] = NULL;
    if (!ready || net_gradients(x, &n, cotangent, all) != TENG_OK)
        hx_fail(h, x, "the gradient of input %d alone fails", i);
    else if (!all[i] != !grad || (grad && !(hx_distance(all[i], grad, tg_desc_numel(&x->in[i])) <= 1e-12)))
        hx_fail(h, x, "the gradient of input %d alone differs from the one with others", i);
    tg_free(all[i]);
    tg_graph_destroy(&n.g);
}

/* False when the rule refuses a gradient into this output. */
static bool check_output(hx *h, const hx_case *x, int o)
{
    net n;
    char purpose[40];
    snprintf(purpose, sizeof purpose, "cotangent %d", o);
    double *cotangent = hx_normal(x, purpose, tg_desc_numel(&x->out[o])), *grad[TENG_CASE_MAX_IN] = {0};
    const bool built = net_build(x, o, -1, &n) == TENG_OK;
    if (!built && o == 0) hx_fail(h, x, "backward of output %d fails", o);
    teng_error_clear();
    if (built) note_reads(h, &n, x);
    for (int i = 0; built && i < x->call.n_in; i++) {
        if (!n.grad[i] || tg_desc_equal(&n.grad[i]->desc, &x->in[i])) continue;
        hx_fail(h, x, "the gradient of input %d has another shape or dtype", i);
        n.grad[i] = NULL;
    }
    if (built && net_gradients(x, &n, cotangent, grad) != TENG_OK)
        hx_fail(h, x, "the gradient cannot be evaluated");
    else if (built)
        for (int i = 0; i < x->call.n_in; i++)
            if (wants_grad(x, i)) check_directions(h, x, o, cotangent, i, grad[i]);
    tg_graph_destroy(&n.g);
    for (int i = 0; built && i < x->call.n_in; i++)
        if (wants_grad(x, i)) check_alone(h, x, o, cotangent, i, grad[i]);
    for (int i = 0; i < x->call.n_in; i++)
        tg_free(grad[i]);
    tg_free(cotangent);
    return built;
}

void hx_check_grad(hx *h, const hx_case *x)
{
    bool any = false;
    if (!h->op->grad) return;
    for (int i = 0; i < x->call.n_in; i++)
        any = any || wants_grad(x, i);
    for (int o = 0; any && o < x->call.n_out; o++)
        if (tg_dtype_is_float(x->out[o].dtype)) check_output(h, x, o);
}
