/*
 * memory.offload: the same bits as in memory, of optimizer states, parameters, activations and all together,
 * alone and with recompute, micro-batches, 16 bits and two lengths; a checkpoint of one goes on as the other;
 * the plan says what is saved and keeps its promises; a folder that cannot be used, a disk that is full and
 * one that fails are errors that say so, and nothing half done is saved.
 */
#include "base/fail.h"
#include "base/file.h"
#include "device/spill.h"
#include "plan/plan_kinds.h"
#include "tensor/desc.h"
#include "tiny_lm.h"

#include "cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static char root[] = "/tmp/teng-offload-XXXXXX";

enum { ALL = TG_OFFLOAD_ALL };

static tg_step_options on_disk(unsigned what)
{
    tg_step_options o = tiny_options();
    o.offload = what;
    o.offload_path = root;
    return o;
}

static teng_cell *model(const char *family)
{
    teng_cell *lm = teng_lm_create(tiny_config(family));
    if (!lm) fail_msg("%s: %s", family, teng_error());
    return lm;
}

static void compare(const char *family, tg_step_options o)
{
    teng_cell *one = model(family), *two = model(family);
    tg_step_options plain = o;
    plain.offload = 0;
    tg_core *memory = tiny_core(one, &plain), *disk = tiny_core(two, &o);
    tiny_data d = {.ragged = true, .other_seq = 16}, e = {.ragged = true, .other_seq = 16};
    for (int step = 0; step < 6; step++) {
        const tg_core_result x = tiny_step(memory, &d, 1e-2), y = tiny_step(disk, &e, 1e-2);
        assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        assert_memory_equal(&x.grad_norm, &y.grad_norm, sizeof x.grad_norm);
    }
    tiny_assert_same_state(memory, disk);
    tg_core_eval_result x, y;
    const tg_source source = tiny_source(&d);
    assert_int_equal(tg_core_eval(memory, &source, 2, NULL, &x), TENG_OK);
    d.next -= 2;
    assert_int_equal(tg_core_eval(disk, &source, 2, NULL, &y), TENG_OK);
    assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
    const size_t states = tg_store_bytes(memory->store, TG_STORE_STATE);
    if (o.offload & TG_OFFLOAD_OPTIMIZER) {
        assert_true(tg_store_bytes(disk->store, TG_STORE_STATE) < states);
        if (o.micro_batches == 1) assert_int_equal(tg_store_bytes(disk->store, TG_STORE_STATE), 0);
    }
    if (o.offload & TG_OFFLOAD_PARAMETERS) assert_int_equal(tg_store_bytes(disk->store, TG_STORE_PARAM), 0);
    tg_core_destroy(&memory);
    tg_core_destroy(&disk);
    teng_cell_destroy(&one);
    teng_cell_destroy(&two);
}

static void the_same_bits(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
    for (int f = 0; f < 4; f++) {
        for (unsigned what = 1; what <= ALL; what += f ? 3 : 1) {
            tg_step_options o = on_disk(what);
            compare(families[f], o);
            o.micro_batches = 2;
            o.recompute = TG_CFG_RECOMPUTE_FULL;
            compare(families[f], o);
        }
        tg_step_options o = on_disk(ALL);
        o.precision.level = TENG_O2;
        o.precision.dtype = TENG_BF16;
        compare(families[f], o);
    }
    tg_step_options o = on_disk(ALL);
    o.optimizer = TG_CFG_OPTIMIZER_SGD;
    compare("llama", o);
    o = on_disk(ALL);
    o.clip_norm = 0;
    compare("gpt2", o);
    char **names;
    size_t n;
    assert_int_equal(tg_list_dir(root, &names, &n), TENG_OK);
    assert_int_equal(n, 0); /* the file has no name */
    tg_names_free(names, n);
}

/* Saved from one, restored into the other. */
static void a_checkpoint_goes_on_as_the_other(void **state)
{
    (void)state;
    char dir[] = "/tmp/teng-offload-ck-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int way = 0; way < 2; way++) {
        tg_step_options o[2] = {tiny_options(), on_disk(ALL)};
        teng_cell *one = model("gpt2"), *two = model("gpt2");
        tg_core *straight = tiny_core(one, &o[way]), *resumed = NULL;
        tiny_data d = {0}, e = {0};
        for (int step = 0; step < 3; step++)
            tiny_step(straight, &d, 1e-2);
        tg_ckpt_writer *writer;
        json_t *saved = json_object();
        assert_int_equal(tg_ckpt_writer_create(dir, 1, way, (tg_ckpt_team){0}, &writer), TENG_OK);
        assert_int_equal(tg_core_submit(straight, writer, saved, false), TENG_OK);
        if (tg_ckpt_writer_wait(writer) != TENG_OK) fail_msg("%s", teng_error());
        tg_ckpt_writer_destroy(&writer);
        json_decref(saved);
        char *path = NULL;
        tg_ckpt *ck = NULL;
        const tg_source source = tiny_source(&e);
        assert_int_equal(tg_ckpt_latest(dir, false, &path), TENG_OK);
        assert_int_equal(tg_ckpt_open(path, false, &ck), TENG_OK);
        assert_int_equal(tg_core_create(two, "cpu", 0, &o[!way], NULL, &resumed), TENG_OK);
        if (tg_core_restore(resumed, ck, &source) != TENG_OK) fail_msg("%s", teng_error());
        tg_ckpt_close(&ck);
        tg_free(path);
        for (int step = 0; step < 3; step++) {
            const tg_core_result x = tiny_step(straight, &d, 1e-2), y = tiny_step(resumed, &e, 1e-2);
            assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        }
        tiny_assert_same_state(straight, resumed);
        tg_core_destroy(&straight);
        tg_core_destroy(&resumed);
        teng_cell_destroy(&one);
        teng_cell_destroy(&two);
        assert_int_equal(tg_remove_tree(dir), TENG_OK);
    }
}

/* Of a model large enough that a disk of the nominal rate keeps up with nothing: what is on its way is
 * bounded by the window then. */
static const tg_plan *plan_of(tg_core *core)
{
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){8, 64});
    const tg_step_feed shapes = {
        .in_desc = (teng_desc[]){desc, desc}, .in_name = (const char *[]){"tokens", "labels"}, .n_in = 2};
    const tg_plan *plan;
    if (tg_step_plan(core->step, &shapes, true, &plan) != TENG_OK) fail_msg("%s", teng_error());
    return plan;
}

/* What was moved is there when it is used, and its place is free when others take it. */
static void check_moves(const tg_plan *plan)
{
    for (size_t i = 0; i < plan->stays.len; i++) {
        const tg_plan_stay *s = &plan->stays.data[i];
        const tg_buffer *b = &plan->buffers.data[s->buffer];
        assert_true(s->from <= s->first && s->first <= s->last && s->last <= s->until);
        assert_true(b->first == s->from && b->last == s->until);
        assert_true(s->read || s->write);
        if (i == 0 || s[-1].value != s->value) continue;
        assert_true(s[-1].until < s->from); /* away in between */
    }
    for (size_t i = 1; i < plan->moves.len; i++) {
        const tg_plan_move *m = &plan->moves.data[i];
        assert_true(m[-1].step < m->step || (m[-1].step == m->step && m[-1].kind <= m->kind));
    }
}

static void the_plan_says_what_is_saved(void **state)
{
    (void)state;
    size_t bytes[ALL + 1];
    for (unsigned what = 0; what <= ALL; what++) {
        tg_step_options o = what ? on_disk(what) : tiny_options();
        teng_cell *lm = model("llama");
        tg_core *core = tiny_core(lm, &o);
        const tg_plan *plan = plan_of(core);
        const tg_plan_memory *m = &plan->memory;
        bytes[what] = tg_plan_bytes(plan);
        const size_t params = m->params + m->offloaded[1];
        assert_int_equal(m->offloaded[0], what & TG_OFFLOAD_OPTIMIZER ? 2 * params : 0);
        assert_int_equal(m->states, what & TG_OFFLOAD_OPTIMIZER ? 0 : 2 * params);
        assert_true((m->offloaded[1] == 0) == !(what & TG_OFFLOAD_PARAMETERS));
        if (what & TG_OFFLOAD_PARAMETERS) assert_int_equal(m->params, 0);
        assert_true(what & TG_OFFLOAD_ACTIVATIONS || m->offloaded[2] == 0);
        assert_true((plan->moves.len == 0) == (what == 0));
        check_moves(plan);
        tg_memory_timeline t;
        assert_int_equal(tg_memory_timeline_make(plan, &t), TENG_OK);
        const size_t window = tg_plan_offloaded(plan) / 8; /* two of them: on the way in, and out */
        for (size_t k = 0; what == TG_OFFLOAD_OPTIMIZER && k < t.n; k++) {
            if (k < plan->phase_begin[TG_UPDATE]) assert_int_equal(t.at[k].bytes[TG_MEMORY_OPTIMIZER], 0);
            size_t own = 0, live = 0;
            for (size_t i = 0; i < plan->stays.len; i++) {
                const tg_plan_stay *s = &plan->stays.data[i];
                const size_t b = plan->buffers.data[s->buffer].bytes;
                if (s->from <= (int)k && (int)k <= s->until) live += b;
                if (b > own) own = b;
            }
            assert_true(live <= window + 6 * own); /* the step's own pair, and one at each end */
        }
        tg_memory_timeline_free(&t);
        const tg_plan_traffic traffic = tg_plan_traffic_of(plan, true);
        if (what == TG_OFFLOAD_OPTIMIZER) assert_true(traffic.bytes == 4.0 * (double)params);
        assert_true((traffic.waits > 0) == ((what & ~(unsigned)TG_OFFLOAD_ACTIVATIONS) != 0));
        tg_core_destroy(&core);
        teng_cell_destroy(&lm);
    }
    assert_true(bytes[TG_OFFLOAD_OPTIMIZER] < bytes[0]);
    assert_true(bytes[TG_OFFLOAD_PARAMETERS] < bytes[0]);
    assert_true(bytes[ALL] < bytes[TG_OFFLOAD_OPTIMIZER] && bytes[ALL] < bytes[TG_OFFLOAD_PARAMETERS]);
}

/* ---- refusals and failures ---- */
static void refused(const tg_step_options *o, teng_status status, const char *message)
{
    teng_cell *lm = model("llama");
    tg_core *core = NULL;
    tg_core_result r;
    tiny_data d = {0};
    const tg_source source = tiny_source(&d);
    teng_status got = tg_core_create(lm, "cpu", 0, o, NULL, &core);
    if (got == TENG_OK) got = tg_core_train_step(core, &source, 1e-3, &r);
    assert_int_equal(got, status);
    if (!strstr(teng_error(), message)) fail_msg("\"%s\" is not in \"%s\"", message, teng_error());
    teng_error_clear();
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void impossible_wishes_are_refused(void **state)
{
    (void)state;
    tg_step_options o = on_disk(TG_OFFLOAD_OPTIMIZER);
    o.pynative = true;
    refused(&o, TENG_INVALID, "memory.offload moves values as the plan says");
    char file[64];
    snprintf(file, sizeof file, "%s/file", root);
    assert_int_equal(tg_file_write(file, "x", 1), TENG_OK);
    for (unsigned what = 1; what <= ALL; what++) {
        o = on_disk(what);
        o.offload_path = file;
        refused(&o, TENG_IO, "offload.path: ");
    }
    assert_int_equal(remove(file), 0);
    limit_files(20000); /* as a full disk: the file cannot grow */
    for (unsigned what = 1; what <= ALL; what++) {
        o = on_disk(what);
        refused(&o, TENG_IO, " has no room for ");
    }
    limit_files(RLIM_INFINITY);
}

/* A disk that fails in the middle of a step: the step is an error that names the value and the folder; what
 * is half done can neither be trained on nor saved. */
static void a_failing_disk(void **state)
{
    (void)state;
    for (unsigned what = 1; what <= ALL; what++) {
        tg_step_options o = on_disk(what);
        teng_cell *lm = model("gpt2");
        tg_core *core = tiny_core(lm, &o);
        tiny_data d = {0};
        const tg_source source = tiny_source(&d);
        tg_core_result r;
        tiny_step(core, &d, 1e-2);
        limit_files(40000);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(tg_core_train_step(core, &source, 1e-2, &r), TENG_IO);
            if (!strstr(teng_error(), "offload: writing ") || !strstr(teng_error(), root) ||
                !strstr(teng_error(), "the last checkpoint is good"))
                fail_msg("%s", teng_error());
            teng_error_clear();
        }
        limit_files(RLIM_INFINITY);
        tg_ckpt_item *items;
        size_t n;
        assert_int_equal(tg_core_items(core, &items, &n), TENG_IO);
        teng_error_clear();
        assert_int_equal(core->done, 1);
        tg_core_destroy(&core);
        teng_cell_destroy(&lm);
    }
}

/* The file alone: requests in order, zeros at first, rooms that grow. */
static void the_file(void **state)
{
    (void)state;
    enum { N = 5000, TENSORS = 5 };
    const size_t bytes = N * sizeof(float);
    tg_spill *s;
    float *x[TENSORS], *y = tg_calloc(N, sizeof *y);
    uint64_t at[TENSORS], slot, other;
    assert_int_equal(tg_spill_create(root, &s), TENG_OK);
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(tg_spill_add(s, "tensor", bytes, &at[i]), TENG_OK);
        assert_true(at[i] % 4096 == 0 && (i == 0 || at[i] >= at[i - 1] + bytes));
        x[i] = tg_calloc(N, sizeof **x);
        y[0] = 1;
        assert_int_equal(tg_spill_wait(s, tg_spill_read(s, "tensor", at[i], bytes, y)), TENG_OK);
        assert_true(y[0] == 0 && y[N - 1] == 0);
    }
    assert_int_equal(tg_spill_slot(s, 3, 10, &slot), TENG_OK);
    assert_int_equal(tg_spill_slot(s, 3, 5, &other), TENG_OK);
    assert_true(slot == other && slot >= at[TENSORS - 1] + bytes);
    assert_int_equal(tg_spill_slot(s, 3, 11, &other), TENG_OK);
    assert_true(slot != other);
    for (int round = 1; round < 60; round++) /* more requests than the ring holds */
        for (int i = 0; i < TENSORS; i++) {
            for (int k = 0; k < N && round == 59; k++)
                x[i][k] = (float)(i * N + k);
            tg_spill_write(s, "tensor", at[i], bytes, x[i]);
        }
    assert_int_equal(tg_spill_wait(s, tg_spill_read(s, "tensor", at[3], bytes, y)), TENG_OK);
    assert_memory_equal(x[3], y, bytes);
    const tg_spill_books books = tg_spill_books_get(s);
    assert_int_equal(books.written, 59 * TENSORS * bytes);
    assert_int_equal(books.read, (TENSORS + 1) * bytes);
    for (int i = 0; i < TENSORS; i++) { /* as memory, both ways */
        void *map;
        assert_int_equal(tg_spill_map(s, at[i], bytes, &map), TENG_OK);
        assert_memory_equal(map, x[i], bytes);
        ((float *)map)[7] = -1;
        tg_spill_rest(map, bytes);
        assert_int_equal(tg_spill_wait(s, tg_spill_read(s, "tensor", at[i], bytes, y)), TENG_OK);
        assert_true(y[7] == -1 && y[8] == x[i][8]);
        tg_spill_unmap(map, bytes);
    }
    tg_spill_destroy(&s);
    assert_null(s);
    for (int i = 0; i < TENSORS; i++)
        tg_free(x[i]);
    tg_free(y);
}

int main(void)
{
    if (!mkdtemp(root)) return 1;
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file),
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(a_checkpoint_goes_on_as_the_other),
        cmocka_unit_test(the_plan_says_what_is_saved),
        cmocka_unit_test(impossible_wishes_are_refused),
        cmocka_unit_test(a_failing_disk),
    };
    const int failed = cmocka_run_group_tests_name("offload", tests, NULL, NULL);
    return tg_remove_tree(root) == TENG_OK ? failed : 1;
}
