/*
 * Pipelines on 2 or 4 ranks (mpirun) against one rank: losses, gradient norms and evaluations of every
 * schedule and family, together with data, tensor and optimizer parallel; what a stage holds; tied tables.
 * "all": more combinations, 20 steps.
 */
#include "base/fail.h"
#include "base/strmap.h"
#include "tensor/desc.h"
#include "tiny_lm.h"
#include "train/step_pipeline.h"
#include "train/team.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

static int steps = 3;
static bool all; /* every combination, for 20 steps */
static tg_team *team;

typedef struct layout { /* of one case */
    const char *family;
    tg_pipe_kind kind;
    int pipeline, chunks, data, tensor, zero;
    int64_t micro_batches;
    tg_cfg_recompute recompute;
    teng_precision_level precision;
    tg_cfg_optimizer optimizer;
    double tolerance; /* 0: 1e-5 */
    int steps;        /* 0: as all */
} layout;

/* tiny_config with four layers. */
static char *config_of(const char *family)
{
    char *text = tg_strdup(tiny_config(family));
    char *at = strstr(text, "\"num_hidden_layers\":2");
    if (at) at[strlen("\"num_hidden_layers\":")] = '4';
    at = strstr(text, "\"n_layer\":2");
    if (at) at[strlen("\"n_layer\":")] = '4';
    return text;
}

static tg_step_options options_of(const layout *l)
{
    tg_step_options o = tiny_options();
    o.micro_batches = l->micro_batches;
    o.recompute = l->recompute;
    o.optimizer = l->optimizer;
    o.precision.level = l->precision;
    o.precision.dtype = TENG_BF16;
    o.no_dropout = l->data * l->tensor > 1; /* which draws are whose then is not a question of pipelines */
    o.pipe_kind = l->kind;
    o.pipe_chunks = l->chunks;
    return o;
}

static tg_core *core_of(teng_cell *cell, const layout *l, const tiny_data *data, bool many)
{
    static tg_parallel_options split;
    tg_step_options o = options_of(l);
    if (!many) return tiny_core(cell, &o);
    int size[TG_AXES] = {1, 1, 1, 1, 1, 1};
    size[TG_AXIS_PIPELINE] = l->pipeline;
    size[TG_AXIS_DATA] = l->data;
    size[TG_AXIS_TENSOR] = l->tensor;
    split =
        (tg_parallel_options){.rank = team->rank, .zero = l->zero, .reduce_dtype = TENG_F32, .fusion = 16384};
    tg_core *core = NULL;
    const int64_t dims[2] = {data->rows / l->micro_batches, data->seq};
    const teng_desc desc = tg_desc_make(TENG_I32, 2, dims);
    const tg_step_feed shapes = {.in_desc = (teng_desc[]){desc, desc},
                                 .in = (const void *[]){data->tokens, data->labels},
                                 .in_name = (const char *[]){"tokens", "labels"},
                                 .n_in = 2,
                                 .weight = 1};
    if (tg_mesh_make(size, team->ranks, &split.mesh) != TENG_OK) fail_msg("%s", teng_error());
    team->mesh = split.mesh;
    o.parallel = &split;
    if (tg_comm_bind(team->comm, &split.mesh) != TENG_OK ||
        tg_core_create(cell, "cpu", 1, &o, team, &core) != TENG_OK ||
        tg_core_lay_out(core, &shapes) != TENG_OK || tg_core_init(core, 11) != TENG_OK)
        fail_msg("%s %s: %s", l->family, tg_pipe_kind_name(l->kind), teng_error());
    return core;
}

static void assert_close(const layout *l, int step, const char *what, double is, double should)
{
    const double tolerance = l->tolerance > 0 ? l->tolerance : 1e-5;
    if (!(fabs(is - should) <= tolerance * fabs(should)))
        fail_msg("%s %s pipeline=%d chunks=%d data=%d tensor=%d zero=%d m=%d precision=%s recompute=%d "
                 "optimizer=%d step %d: %s %.9g, one rank has %.9g",
                 l->family, tg_pipe_kind_name(l->kind), l->pipeline, l->chunks, l->data, l->tensor, l->zero,
                 (int)l->micro_batches, teng_precision_level_name(l->precision), (int)l->recompute,
                 (int)l->optimizer, step, what, is, should);
}

/* What the stage holds is what the schedule says, in as many blocks. */
static void check_memory(const layout *l, const tg_core *core)
{
    const tg_step_pipe *p = core->step->pipe;
    int held = 0;
    assert_non_null(p);
    for (size_t i = 0; i < p->programs.len; i++) {
        const tg_pipe_program *program = p->programs.data[i];
        for (int c = 0; program->kind == TG_STEP_TRAIN && c < p->chunks; c++) {
            const tg_pipe_piece *piece = &program->pieces[c];
            held += piece->slots;
            for (int k = 0; k < piece->slots; k++)
                assert_true(tg_exec_block_bytes(p->slots[c * p->most + k]) >= piece->plan->memory.slot);
            assert_true(piece->plan->memory.slot > 0 || l->recompute == TG_CFG_RECOMPUTE_FULL);
            for (int k = piece->slots; k < p->most; k++) /* no more than that */
                assert_int_equal(tg_exec_block_bytes(p->slots[c * p->most + k]), 0);
        }
    }
    assert_true(held >= 1);
    if (p->chunks == 1) assert_int_equal(held, tg_pipe_bound(p->schedule, p->stage));
}

/* Parameters of other stages are not here; every one is somewhere; a shared one is the same bits everywhere.
 */
static void check_params(const tg_core *core)
{
    const tg_param_info *params;
    size_t n, here = 0;
    assert_int_equal(tg_nn_params(core->cell, &params, &n), TENG_OK);
    tg_group *stages = tg_comm_along(team->comm, 1u << TG_AXIS_PIPELINE);
    for (size_t i = 0; i < n; i++) {
        const tg_store_entry *e = tg_store_find(core->store, params[i].name);
        const uint64_t bits = e ? tg_hash64(e->data, tg_desc_bytes(&e->desc), 1) >> 1 : 0;
        int64_t on = e != NULL, most = (int64_t)bits, least = e ? (int64_t)bits : INT64_MAX;
        here += e != NULL;
        assert_int_equal(tg_comm_all_reduce(stages, TG_REDUCE_SUM, TENG_I64, &on, &on, 1), TENG_OK);
        assert_int_equal(tg_comm_all_reduce(stages, TG_REDUCE_MAX, TENG_I64, &most, &most, 1), TENG_OK);
        assert_int_equal(tg_comm_all_reduce(stages, TG_REDUCE_MIN, TENG_I64, &least, &least, 1), TENG_OK);
        if (on < 1) fail_msg("%s is on no stage", params[i].name);
        if (most != least) fail_msg("%s differs between the stages that hold it", params[i].name);
    }
    assert_true(here > 0 && here < n);
}

static double eval_of(tg_core *core, tiny_data *data)
{
    const tg_source source = tiny_source(data);
    tg_core_eval_result r;
    if (tg_core_eval(core, &source, 2, NULL, &r) != TENG_OK) fail_msg("%s", teng_error());
    return r.loss;
}

static void compare(const layout *l)
{
    char *config = config_of(l->family);
    teng_cell *cells[2];
    tg_core *one, *many;
    tiny_data data[2] = {{.rows = 8, .seq = TINY_SEQ, .ragged = true},
                         {.rows = 8, .seq = TINY_SEQ, .ragged = true}};
    for (int i = 0; i < 2; i++)
        if (!(cells[i] = teng_lm_create(config))) fail_msg("%s", teng_error());
    one = core_of(cells[0], l, &data[0], false);
    many = core_of(cells[1], l, &data[1], true);
    assert_close(l, 0, "evaluation", eval_of(many, &data[1]), eval_of(one, &data[0]));
    const int last = l->steps > 0 ? l->steps : steps;
    for (int step = 1; step <= last; step++) {
        const tg_core_result a = tiny_step(one, &data[0], 3e-3), b = tiny_step(many, &data[1], 3e-3);
        assert_close(l, step, "loss", b.loss, a.loss);
        assert_close(l, step, "norm", b.grad_norm, a.grad_norm);
        assert_int_equal(a.tokens, b.tokens);
    }
    assert_close(l, last, "evaluation", eval_of(many, &data[1]), eval_of(one, &data[0]));
    check_memory(l, many);
    check_params(many);
    tg_core_destroy(&one);
    tg_core_destroy(&many);
    for (int i = 0; i < 2; i++)
        teng_cell_destroy(&cells[i]);
    tg_free(config);
}

static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
static const struct {
    tg_pipe_kind kind;
    int chunks;
} schedules[] = {{TG_PIPE_1F1B, 1}, {TG_PIPE_GPIPE, 1}, {TG_PIPE_ZERO_BUBBLE, 1}, {TG_PIPE_INTERLEAVED, 2}};

static void every_schedule_and_family(void **state)
{
    (void)state;
    for (size_t f = 0; f < 4; f++)
        for (size_t k = 0; k < 4; k++) {
            const int pipeline = team->ranks;
            if (schedules[k].chunks * pipeline > 4) continue; /* layers */
            compare(&(layout){.family = families[f],
                              .kind = schedules[k].kind,
                              .chunks = schedules[k].chunks,
                              .pipeline = pipeline,
                              .data = 1,
                              .tensor = 1,
                              .micro_batches = 8});
        }
}

static void with_other_axes(void **state)
{
    (void)state;
    if (team->ranks < 4) skip();
    for (int zero = 0; zero <= 3; zero++)
        for (size_t k = all ? 0 : (size_t)zero % 2; k < 4; k += all ? 1 : 2)
            compare(&(layout){.family = families[((size_t)zero + k / 2) % 4],
                              .kind = schedules[k].kind,
                              .chunks = schedules[k].chunks,
                              .pipeline = 2,
                              .data = 2,
                              .tensor = 1,
                              .zero = zero,
                              .micro_batches = 4});
    for (size_t f = 0; f < 3; f++)
        compare(&(layout){.family = families[f],
                          .kind = schedules[f].kind,
                          .chunks = 1,
                          .pipeline = 2,
                          .data = 1,
                          .tensor = 2,
                          .micro_batches = 4});
}

static void with_other_options(void **state)
{
    (void)state;
    const layout base = {.family = "llama",
                         .kind = TG_PIPE_1F1B,
                         .pipeline = team->ranks,
                         .chunks = 1,
                         .data = 1,
                         .tensor = 1,
                         .micro_batches = 4};
    layout l = base;
    l.micro_batches = 1; /* fewer than stages */
    compare(&l);
    l = base;
    l.recompute = TG_CFG_RECOMPUTE_FULL;
    compare(&l);
    l.kind = TG_PIPE_ZERO_BUBBLE;
    l.recompute = TG_CFG_RECOMPUTE_SELECTIVE;
    compare(&l);
    l = base;
    l.optimizer = TG_CFG_OPTIMIZER_SGD;
    compare(&l);
    /* 16 bits: what is not tied is the same numbers; a tied table's gradient is rounded once less, and what
     * follows of that grows from step to step. */
    l = base;
    l.precision = TENG_O2;
    l.family = "qwen3";
    compare(&l);
    l.family = "llama";
    l.tolerance = 2e-3;
    l.steps = 3;
    compare(&l);
}

static void refusals(void **state)
{
    (void)state;
    int size[TG_AXES] = {team->ranks, 1, 1, 1, 1, 1};
    tg_parallel_options split = {.rank = team->rank, .reduce_dtype = TENG_F32};
    tg_core *core = NULL;
    teng_cell *cell = teng_lm_create(tiny_config("llama"));
    assert_int_equal(tg_mesh_make(size, 0, &split.mesh), TENG_OK);
    team->mesh = split.mesh;
    tg_step_options o = tiny_options();
    o.parallel = &split;
    o.pynative = true;
    assert_int_equal(tg_core_create(cell, "cpu", 1, &o, team, &core), TENG_UNSUPPORTED);
    assert_non_null(strstr(teng_error(), "context.mode=graph"));
    teng_error_clear();
    o.pynative = false;
    o.recompute = TG_CFG_RECOMPUTE_AUTO;
    o.memory_budget = 1 << 30;
    assert_int_equal(tg_core_create(cell, "cpu", 1, &o, team, &core), TENG_UNSUPPORTED);
    assert_non_null(strstr(teng_error(), "memory.recompute=auto"));
    teng_error_clear();
    o.recompute = TG_CFG_RECOMPUTE_NONE;
    o.pipe_kind = TG_PIPE_INTERLEAVED;
    o.pipe_chunks = 2;
    o.micro_batches = 3;
    assert_int_equal(tg_core_create(cell, "cpu", 1, &o, team, &core), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "does not divide train.micro_batches=3"));
    teng_error_clear();
    teng_cell_destroy(&cell);
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "all") == 0;
    if (all) steps = 20;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_and_family),
        cmocka_unit_test(with_other_axes),
        cmocka_unit_test(with_other_options),
        cmocka_unit_test(refusals),
    };
    if (tg_team_open(&team) != TENG_OK || team->ranks < 2) {
        fprintf(stderr, "this test runs under mpirun -n 2 or 4: %s\n", teng_error());
        return 77;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tg_team_close(&team);
    return failed;
}
