/*
 * The update against plain loops in float64, step by step: AdamW and SGD with their options, the global-norm
 * clip, which roles decay, dropped steps, accumulation; and the schedules against closed formulas.
 */
#include "base/fail.h"
#include "base/rng.h"
#include "tensor/desc.h"
#include "tiny_lm.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

#define STEPS 20
enum { N_PARAMS = 4, SIZE = 37 };

/* loss = Σ mean(p² · in) over four parameters, one of each role: the gradient of p is 2 p · in / SIZE. */
typedef struct four {
    teng_param *p[N_PARAMS];
} four;
static const teng_role roles[N_PARAMS] = {TENG_ROLE_WEIGHT, TENG_ROLE_BIAS, TENG_ROLE_NORM,
                                          TENG_ROLE_EMBEDDING};

static teng_tensor *forward(teng_cell *self, teng_tensor *const *in, int n)
{
    (void)n;
    const four *f = teng_cell_data(self);
    teng_tensor *sum = NULL;
    for (int i = 0; i < N_PARAMS; i++) {
        teng_tensor *p = teng_value(f->p[i]);
        teng_tensor *part = teng_mean(teng_mul(teng_square(p), in[0]), (teng_dims){0}, false);
        sum = sum ? teng_add(sum, part) : part;
    }
    return sum;
}

static teng_cell *make_cell(void)
{
    static const char *const names[N_PARAMS] = {"w", "b", "n", "e"};
    teng_cell *cell = teng_cell_create("four", sizeof(four), forward);
    four *f = teng_cell_data(cell);
    for (int i = 0; i < N_PARAMS; i++)
        f->p[i] =
            teng_cell_param(cell, names[i], TENG_DIMS(SIZE), (teng_init){TENG_INIT_NORMAL, 0, 1, roles[i]});
    return cell;
}

/* ---- batches: one row of factors ---- */
typedef struct factors {
    uint64_t next;
    float scale, x[SIZE];
} factors;

static teng_status next_factors(void *user, tg_source_batch *out)
{
    factors *f = user;
    tg_rng_normal(tg_rng_key(f->next++, "factors"), 1, f->x, SIZE);
    for (int i = 0; i < SIZE; i++)
        f->x[i] *= f->scale;
    *out = (tg_source_batch){.n_in = 1,
                             .desc = {tg_desc_make(TENG_F32, 2, (const int64_t[]){1, SIZE})},
                             .data = {f->x},
                             .name = {"x"},
                             .labels = -1};
    return TENG_OK;
}

static uint64_t no_cursor(void *user)
{
    (void)user;
    return 0;
}

/* ---- the plain loop ---- */
typedef struct plain {
    double p[N_PARAMS][SIZE], m[N_PARAMS][SIZE], v[N_PARAMS][SIZE], norm, coef;
    int t;
} plain;

static bool decays(const tg_step_options *o, int i)
{
    const bool on[] = {true, o->decay_biases, o->decay_norms, o->decay_embeddings};
    return on[i];
}

static void plain_step(plain *s, const tg_step_options *o, const float *x, double lr)
{
    double sum = 0;
    s->t++;
    for (int i = 0; i < N_PARAMS; i++)
        for (int k = 0; k < SIZE; k++)
            sum += pow(2 * s->p[i][k] * (double)x[k] / SIZE, 2);
    s->norm = sqrt(sum);
    s->coef = o->clip_norm > 0 && s->norm > o->clip_norm ? o->clip_norm / (s->norm + 1e-6) : 1;
    const double c1 = 1 - pow(o->beta1, s->t), c2 = 1 - pow(o->beta2, s->t);
    for (int i = 0; i < N_PARAMS; i++)
        for (int k = 0; k < SIZE; k++) {
            double *p = &s->p[i][k], *m = &s->m[i][k], *v = &s->v[i][k];
            const double wd = decays(o, i) ? o->weight_decay : 0;
            double g = s->coef * 2 * *p * (double)x[k] / SIZE;
            if (o->optimizer == TG_CFG_OPTIMIZER_ADAMW) {
                *m = o->beta1 * *m + (1 - o->beta1) * g;
                *v = o->beta2 * *v + (1 - o->beta2) * g * g;
                *p = *p - lr * wd * *p - lr * (*m / c1) / (sqrt(*v / c2) + o->eps);
            } else {
                g += wd * *p;
                *m = o->momentum * *m + g;
                *p -= lr * (o->nesterov ? g + o->momentum * *m : *m);
            }
        }
}

static void compare(const tg_step_options *o)
{
    static const char *const names[N_PARAMS] = {"w", "b", "n", "e"};
    teng_cell *cell = make_cell();
    tg_core *core = tiny_core(cell, o);
    plain s = {0};
    factors f = {.scale = 20};
    const tg_source source = {.user = &f, .next = next_factors, .cursor = no_cursor};
    bool clipped = false;
    for (int i = 0; i < N_PARAMS; i++)
        for (int k = 0; k < SIZE; k++)
            s.p[i][k] = (double)((float *)tg_store_find(core->store, names[i])->data)[k];
    for (int step = 0; step < STEPS; step++) {
        const double lr = 0.01 * (1 + step % 3);
        tg_core_result r;
        if (tg_core_train_step(core, &source, lr, &r) != TENG_OK) fail_msg("%s", teng_error());
        plain_step(&s, o, f.x, lr);
        assert_true(fabs(r.grad_norm - s.norm) < 1e-5 * s.norm);
        clipped = clipped || s.coef < 1;
    }
    assert_true(clipped == (o->clip_norm > 0));
    for (int i = 0; i < N_PARAMS; i++) {
        tg_diff diff;
        tg_compare(TENG_F32, tg_store_find(core->store, names[i])->data, TENG_F64, s.p[i], SIZE, &diff);
        if (!(diff.rel_l2 < 2e-6)) fail_msg("%s differs by %g", names[i], diff.rel_l2);
    }
    tg_core_destroy(&core);
    teng_cell_destroy(&cell);
}

static void adamw(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    o.eps = 1e-6; /* differences are not blown up where the gradient is tiny */
    compare(&o);
    o.clip_norm = 0;
    compare(&o);
    o.weight_decay = 0;
    o.beta1 = 0;
    compare(&o);
}

static void sgd(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        tg_step_options o = tiny_options();
        o.optimizer = TG_CFG_OPTIMIZER_SGD;
        o.momentum = variant & 1 ? 0.9 : 0;
        o.nesterov = variant & 2;
        o.weight_decay = variant & 4 ? 0.2 : 0;
        compare(&o);
    }
}

static void roles_decay_as_configured(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        tg_step_options o = tiny_options();
        o.eps = 1e-6;
        o.weight_decay = 0.5; /* wrong roles would show */
        o.decay_biases = variant & 1;
        o.decay_norms = variant & 2;
        o.decay_embeddings = variant & 4;
        compare(&o);
    }
}

/* ---- steps that are not finite ---- */
static void dropped(const tg_step_options *o, float bad)
{
    teng_cell *one = make_cell(), *two = make_cell();
    tg_core *core = tiny_core(one, o), *never = tiny_core(two, o);
    factors f = {.scale = 1}, g = {.scale = 1};
    const tg_source source = {.user = &f, .next = next_factors, .cursor = no_cursor},
                    clean = {.user = &g, .next = next_factors, .cursor = no_cursor};
    tg_core_result r, s;
    assert_int_equal(tg_core_train_step(core, &source, 0.01, &r), TENG_OK);
    assert_int_equal(tg_core_train_step(never, &clean, 0.01, &s), TENG_OK);
    f.scale = bad;
    f.next = 50;
    assert_int_equal(tg_core_train_step(core, &source, 0.01, &r), TENG_OK);
    assert_false(r.finite);
    assert_false(isfinite(r.grad_norm) && isfinite(r.loss));
    tiny_assert_same_state(core, never); /* nothing has changed, nor been counted */
    assert_int_equal(core->done, 2);
    assert_int_equal(core->applied, 1);
    f.scale = 1;
    f.next = 1;
    assert_int_equal(tg_core_train_step(core, &source, 0.01, &r), TENG_OK);
    assert_int_equal(tg_core_train_step(never, &clean, 0.01, &s), TENG_OK);
    assert_true(r.finite && memcmp(&r.loss, &s.loss, sizeof r.loss) == 0);
    tiny_assert_same_state(core, never);
    tg_core_destroy(&core);
    tg_core_destroy(&never);
    teng_cell_destroy(&one);
    teng_cell_destroy(&two);
}

static void steps_that_are_not_finite_change_nothing(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        tg_step_options o = tiny_options();
        o.optimizer = variant & 1 ? TG_CFG_OPTIMIZER_SGD : TG_CFG_OPTIMIZER_ADAMW;
        o.pynative = variant & 2;
        dropped(&o, NAN);
        dropped(&o, INFINITY);
        o.clip_norm = 0;
        dropped(&o, NAN);
    }
}

/* loss = 1e38 · (mean(p) + mean(in)) overflows, its gradient is 1e38 / SIZE. */
static teng_tensor *overflow(teng_cell *self, teng_tensor *const *in, int n)
{
    (void)n;
    teng_tensor *p = teng_value(*(teng_param **)teng_cell_data(self));
    teng_tensor *big = teng_add(teng_mean(p, (teng_dims){0}, false), teng_mean(in[0], (teng_dims){0}, false));
    return teng_scale(big, 1e38);
}

static void a_loss_that_overflows_drops_the_step(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        tg_step_options o = tiny_options();
        o.pynative = mode;
        o.clip_norm = 1;
        teng_cell *cell = teng_cell_create("overflow", sizeof(teng_param *), overflow);
        *(teng_param **)teng_cell_data(cell) = teng_cell_param(
            cell, "p", TENG_DIMS(SIZE), (teng_init){TENG_INIT_CONST, 0.5, 0, TENG_ROLE_WEIGHT});
        tg_core *core = tiny_core(cell, &o);
        factors f = {.scale = 1e6F};
        const tg_source source = {.user = &f, .next = next_factors, .cursor = no_cursor};
        tg_core_result r;
        assert_int_equal(tg_core_train_step(core, &source, 0.01, &r), TENG_OK);
        assert_true(!isfinite(r.loss)); /* 1e38 · about 1e5 */
        assert_false(r.finite);
        assert_true(((float *)tg_store_find(core->store, "p")->data)[0] == 0.5F);
        tg_core_destroy(&core);
        teng_cell_destroy(&cell);
    }
}

static teng_tensor *constant(teng_cell *self, teng_tensor *const *in, int n)
{
    (void)self, (void)n;
    return teng_mean(in[0], (teng_dims){0}, false);
}

static void nothing_to_train(void **state)
{
    (void)state;
    const tg_step_options o = tiny_options();
    teng_cell *cell = teng_cell_create("constant", 0, constant);
    teng_cell_param(cell, "unused", TENG_DIMS(3), (teng_init){TENG_INIT_CONST, 1, 0, TENG_ROLE_WEIGHT});
    tg_core *core = tiny_core(cell, &o);
    factors f = {.scale = 1};
    const tg_source source = {.user = &f, .next = next_factors, .cursor = no_cursor};
    tg_core_result r;
    assert_int_equal(tg_core_train_step(core, &source, 0.01, &r), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "the loss depends on no parameter: there is nothing to train"));
    teng_error_clear();
    tg_core_destroy(&core);
    teng_cell_destroy(&cell);
}

/* ---- schedules ---- */
static void set(tg_config *cfg, const char *key, const char *value)
{
    if (tg_config_set(cfg, key, value) != TENG_OK) fail_msg("%s", teng_error());
}

static double expected(const char *name, int step, int warmup, int decay, double low)
{
    const int steps = 100;
    if (step <= warmup) return (double)step / warmup;
    if (strcmp(name, "constant") == 0) return 1;
    const int begin = strcmp(name, "wsd") == 0 ? steps - decay : warmup;
    if (step <= begin) return 1;
    const double x = (double)(step - begin) / (steps - begin);
    if (strcmp(name, "cosine") == 0) return low + (1 - low) * (1 + cos(M_PI * x)) / 2;
    return 1 - (1 - low) * x;
}

static void schedules(void **state)
{
    (void)state;
    static const char *const names[] = {"constant", "linear", "cosine", "wsd"};
    for (int i = 0; i < 4; i++)
        for (int warm = 0; warm < 2; warm++) {
            tg_config *cfg = tg_config_create();
            set(cfg, "train.steps", "100");
            set(cfg, "optimizer.lr", "0.02");
            set(cfg, "schedule.name", names[i]);
            set(cfg, "schedule.warmup_steps", warm ? "10" : "0");
            set(cfg, "schedule.decay_steps", "25");
            set(cfg, "schedule.min_lr_ratio", "0.1");
            for (int step = 1; step <= 100; step++) {
                const double got = tg_schedule_lr(cfg, step),
                             want = 0.02 * expected(names[i], step, warm * 10, 25, 0.1);
                if (!(fabs(got - want) < 1e-15))
                    fail_msg("%s, step %d: %g, not %g", names[i], step, got, want);
            }
            const double end = tg_schedule_lr(cfg, 100), beyond = tg_schedule_lr(cfg, 150);
            assert_true(fabs(end - (i ? 0.002 : 0.02)) < 1e-15);
            assert_true(fabs(beyond - end) < 1e-15); /* a run that goes on longer stays at the end */
            tg_config_destroy(&cfg);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw),
        cmocka_unit_test(sgd),
        cmocka_unit_test(roles_decay_as_configured),
        cmocka_unit_test(steps_that_are_not_finite_change_nothing),
        cmocka_unit_test(a_loss_that_overflows_drops_the_step),
        cmocka_unit_test(nothing_to_train),
        cmocka_unit_test(schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
