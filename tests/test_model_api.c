/*
 * teng_model with cells of the user's own: both modes, micro-batches, batches of several lengths, callbacks,
 * checkpoints and resume to the last bit, weights in files, and what is refused. Language models are in
 * test_lm_use.c.
 */
#include "teng/teng.h"

#include "base/file.h"
#include "base/log.h"

#include "cmocka_all.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    ROWS = 8,
    LEN = 12,
    WIDTH = 6,
    CLASSES = 5,
    MOST_STEPS = 32,
    PARAMS = 2 * WIDTH * WIDTH + CLASSES * WIDTH
};

/* x f32 [ROWS, T, WIDTH], labels i32 [ROWS, T] → mean cross-entropy; T is 12, or 7 in every third batch. */
typedef struct net {
    teng_cell *gate, *up, *head;
} net;

static teng_tensor *net_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const net *g = teng_cell_data(self);
    teng_tensor *h = teng_swiglu(teng_call(g->gate, in[0]), teng_call(g->up, in[0]));
    teng_tensor *logits = teng_call(g->head, h);
    return n_in == 2 ? teng_cross_entropy(logits, in[1], TENG_IGNORE_INDEX) : logits;
}

static teng_cell *make_net(void)
{
    teng_cell *cell = teng_cell_create("net", sizeof(net), net_forward);
    net *g = teng_cell_data(cell);
    g->gate = teng_cell_add(cell, "gate", teng_nn_linear(WIDTH, WIDTH, false, 0.5));
    g->up = teng_cell_add(cell, "up", teng_nn_linear(WIDTH, WIDTH, false, 0.5));
    g->head = teng_cell_add(cell, "head", teng_nn_linear(WIDTH, CLASSES, false, 0.5));
    return cell;
}

static double draw(int64_t epoch, int64_t index, int64_t i)
{
    const double x = sin((double)(epoch * 7919 + index * 104729 + i) * 12.9898) * 43758.5453;
    return x - floor(x);
}

/* One label in nine does not count, in a row of its own pattern, so that micro-batches weigh differently. */
static teng_status fill(void *user, teng_batch *b)
{
    const bool one_length = user && *(const int *)user;
    const int64_t len = !one_length && b->index % 3 == 2 ? 7 : LEN;
    float *x = b->data[0];
    int32_t *labels = b->data[1];
    b->desc[0].dims[1] = b->desc[1].dims[1] = len;
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t t = 0; t < len; t++) {
            const int64_t at = r * len + t;
            for (int64_t c = 0; c < WIDTH; c++)
                x[at * WIDTH + c] = (float)(2 * draw(b->epoch, b->index, at * WIDTH + c) - 1);
            labels[at] = x[at * WIDTH] > 0 ? 1 : x[at * WIDTH + 1] > 0 ? 3 : 0;
            if ((r * r + t) % 9 == 0) labels[at] = TENG_IGNORE_INDEX;
        }
    return TENG_OK;
}

static const teng_input inputs[] = {{"x", {TENG_F32, 3, {ROWS, LEN, WIDTH}}},
                                    {"labels", {TENG_I32, 2, {ROWS, LEN}}}};

static teng_dataset *make_data(void)
{
    return teng_dataset_create(inputs, 2, 5, fill, NULL);
}

static teng_model_options options_of(teng_mode mode)
{
    teng_model_options o = teng_model_options_default();
    o.mode = mode;
    o.threads = 1;
    o.schedule.lr = 0.03;
    return o;
}

/* ---- a callback that writes the losses down ---- */
typedef struct record {
    double loss[MOST_STEPS + 1], lr[MOST_STEPS + 1], norm[MOST_STEPS + 1]; /* by step, from 1 */
    int64_t first, last, begun, ended, stop_at, fail_at;
    teng_status end_status;
} record;

static teng_status note_begin(teng_callback *self, teng_train_info *info)
{
    (void)info;
    ((record *)self->user)->begun++;
    return TENG_OK;
}

static teng_status note_step(teng_callback *self, teng_train_info *info)
{
    record *r = self->user;
    assert_true(info->step >= 1 && info->step <= MOST_STEPS);
    if (!r->first) r->first = info->step;
    r->last = info->step;
    r->loss[info->step] = info->loss;
    r->lr[info->step] = info->lr;
    r->norm[info->step] = info->grad_norm;
    assert_true(info->finite && info->seconds > 0 && info->step_tokens > 0 &&
                info->tokens >= info->step_tokens);
    if (info->step == r->stop_at) info->stop = true;
    return info->step == r->fail_at ? TENG_STATE : TENG_OK;
}

static teng_status note_end(teng_callback *self, teng_train_info *info)
{
    record *r = self->user;
    r->ended++;
    r->end_status = info->status;
    return TENG_OK;
}

static teng_callback noting(record *r)
{
    return (teng_callback){.on_begin = note_begin, .on_step = note_step, .on_end = note_end, .user = r};
}

/* ---- a model with all that it needs ---- */
typedef struct set {
    teng_cell *cell;
    teng_model *model;
    teng_dataset *data;
} set;

static set open_set(teng_model_options options)
{
    set s = {.cell = make_net(), .data = make_data()};
    s.model = teng_model_create(s.cell, &options);
    if (!s.model || !s.data) fail_msg("%s", teng_error());
    return s;
}

static void close_set(set *s)
{
    teng_model_destroy(&s->model);
    teng_dataset_destroy(&s->data);
    teng_cell_destroy(&s->cell);
}

static void read_params(teng_model *model, float out[PARAMS])
{
    assert_int_equal(teng_model_read(model, "gate.weight", out, WIDTH * WIDTH), TENG_OK);
    assert_int_equal(teng_model_read(model, "up.weight", out + WIDTH * WIDTH, WIDTH * WIDTH), TENG_OK);
    assert_int_equal(teng_model_read(model, "head.weight", out + 2 * WIDTH * WIDTH, CLASSES * WIDTH),
                     TENG_OK);
}

static void ok(teng_status status)
{
    if (status != TENG_OK) fail_msg("%s: %s", teng_status_name(status), teng_error());
}

static void refused(teng_status got, teng_status want, const char *words)
{
    assert_int_equal(got, want);
    assert_int_equal(teng_error_status(), want);
    if (!strstr(teng_error(), words)) fail_msg("\"%s\" is not in: %s", words, teng_error());
    teng_error_clear();
}

static void refused_null(const void *got, const char *words)
{
    assert_null(got);
    if (!strstr(teng_error(), words)) fail_msg("\"%s\" is not in: %s", words, teng_error());
    teng_error_clear();
}

static void train(const teng_model_options *options, int64_t steps, record *r, float params[PARAMS])
{
    set s = open_set(*options);
    teng_callback callback = noting(r);
    ok(teng_model_train(s.model, s.data, steps, &callback, 1));
    assert_int_equal(teng_model_step(s.model), steps);
    read_params(s.model, params);
    close_set(&s);
}

/* ---- modes, lengths, micro-batches ---- */
static void modes_are_equal_to_the_bit(void **state)
{
    (void)state;
    record graph = {0}, eager = {0};
    float a[PARAMS], b[PARAMS];
    teng_model_options g = options_of(TENG_GRAPH), p = options_of(TENG_PYNATIVE);
    train(&g, 20, &graph, a);
    train(&p, 20, &eager, b);
    assert_memory_equal(graph.loss, eager.loss, sizeof graph.loss);
    assert_memory_equal(graph.norm, eager.norm, sizeof graph.norm);
    assert_memory_equal(a, b, sizeof a);
    assert_true(graph.loss[20] < 0.8 * graph.loss[1]);
    assert_int_equal(graph.begun, 1);
    assert_int_equal(graph.ended, 1);
    g.seed = p.seed = 2;
    record other = {0};
    train(&g, 2, &other, b);
    assert_true(other.loss[1] != graph.loss[1]);
}

static void micro_batches_make_the_same_step(void **state)
{
    (void)state;
    record whole = {0}, cut[2] = {0};
    float a[PARAMS], b[2][PARAMS];
    teng_model_options o = options_of(TENG_GRAPH);
    o.schedule.lr = 0.003;
    train(&o, 10, &whole, a);
    o.micro_batches = 4;
    train(&o, 10, &cut[0], b[0]);
    o.mode = TENG_PYNATIVE;
    train(&o, 10, &cut[1], b[1]);
    for (int i = 1; i <= 10; i++)
        assert_true(fabs(whole.loss[i] - cut[0].loss[i]) < 1e-5);
    for (int i = 0; i < PARAMS; i++)
        assert_true(fabsf(a[i] - b[0][i]) < 1e-4f);
    assert_memory_equal(cut[0].loss, cut[1].loss, sizeof cut[0].loss);
    assert_memory_equal(b[0], b[1], sizeof b[0]);
    o.micro_batches = 3;
    set s = open_set(o);
    refused(teng_model_train(s.model, s.data, 1, NULL, 0), TENG_INVALID, "does not divide");
    close_set(&s);
}

static void sgd_and_schedules(void **state)
{
    (void)state;
    record r = {0};
    float params[PARAMS];
    teng_model_options o = options_of(TENG_GRAPH);
    o.optimizer.kind = TENG_SGD;
    o.schedule = (teng_schedule){
        .kind = TENG_WSD, .lr = 0.1, .warmup_steps = 4, .decay_steps = 4, .min_lr_ratio = 0.5};
    train(&o, 12, &r, params);
    assert_true(fabs(r.lr[1] - 0.025) < 1e-12 && fabs(r.lr[4] - 0.1) < 1e-12 && fabs(r.lr[8] - 0.1) < 1e-12);
    assert_true(fabs(r.lr[10] - 0.075) < 1e-12 && fabs(r.lr[12] - 0.05) < 1e-12);
    assert_true(r.loss[12] < r.loss[1]);
    o.schedule = (teng_schedule){.kind = TENG_COSINE, .lr = 0.1, .steps = 24};
    train(&o, 12, &r, params);
    assert_true(fabs(r.lr[12] - 0.05) < 1e-12); /* half-way: the schedule is longer than this training */
    o.schedule = (teng_schedule){.kind = TENG_LINEAR, .lr = 0.1};
    train(&o, 10, &r, params);
    assert_true(fabs(r.lr[5] - 0.05) < 1e-12 && r.lr[10] < 1e-12);
}

/* ---- callbacks ---- */
static void callbacks_stop_and_fail(void **state)
{
    (void)state;
    set s = open_set(options_of(TENG_GRAPH));
    record first = {.stop_at = 3}, second = {0};
    teng_callback both[] = {noting(&first), noting(&second)};
    ok(teng_model_train(s.model, s.data, 10, both, 2));
    assert_int_equal(teng_model_step(s.model), 3);
    assert_int_equal(second.ended, 1);
    assert_int_equal(second.end_status, TENG_OK);
    first.stop_at = 0;
    first.fail_at = 5;
    refused(teng_model_train(s.model, s.data, 10, both, 2), TENG_STATE, "ended the training at step 5");
    assert_int_equal(second.ended, 2);
    assert_int_equal(second.end_status, TENG_STATE);
    assert_int_equal(second.last, 4);                  /* the second one was not asked about step 5 */
    ok(teng_model_train(s.model, s.data, 5, both, 2)); /* done already */
    assert_int_equal(teng_model_step(s.model), 5);
    close_set(&s);
}

static void monitors_print_where_they_are_told(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    set s = open_set(options_of(TENG_GRAPH));
    teng_callback callbacks[] = {teng_loss_monitor(4, out), teng_time_monitor(5, out)};
    ok(teng_model_train(s.model, s.data, 10, callbacks, 2));
    fclose(out);
    static const char *const lines[] = {"step 1/10 ",  "step 4/10 ",   "step 8/10 ", "step 10/10 ",
                                        "steps 1-5: ", "steps 6-10: ", "all steps: "};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i])) fail_msg("\"%s\" is not in:\n%s", lines[i], text);
    assert_null(strstr(text, "step 2/10 "));
    int count = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        count++;
    assert_int_equal(count, 7);
    free(text);
    close_set(&s);
}

/* ---- checkpoints ---- */
static char folder[] = "model_api_XXXXXX";

static char *in_folder(const char *name)
{
    static char paths[4][200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void resume_is_equal_to_the_bit(void **state)
{
    (void)state;
    for (int mode = TENG_GRAPH; mode <= TENG_PYNATIVE; mode++) {
        record whole = {0}, rest = {0};
        float a[PARAMS], b[PARAMS];
        const char *dir = in_folder(mode == TENG_GRAPH ? "graph" : "pynative");
        teng_model_options o = options_of((teng_mode)mode);
        o.schedule.kind = TENG_COSINE;
        o.schedule.steps = 18;
        train(&o, 18, &whole, a);
        set s = open_set(o);
        record begin = {.stop_at = 11};
        teng_callback callbacks[] = {noting(&begin), teng_checkpoint(dir, 4, 2)};
        ok(teng_model_resume(s.model, s.data, dir)); /* nothing is there */
        assert_int_equal(teng_model_step(s.model), 0);
        ok(teng_model_train(s.model, s.data, 18, callbacks, 2));
        close_set(&s);
        size_t n = 0;
        char **names;
        ok(tg_list_dir(dir, &names, &n));
        assert_int_equal(n, 3); /* lock, steps 8 and 11 */
        assert_string_equal(names[1], "step-00000008");
        assert_string_equal(names[2], "step-00000011");
        tg_names_free(names, n);
        s = open_set(o);
        ok(teng_model_resume(s.model, s.data, dir));
        assert_int_equal(teng_model_step(s.model), 11);
        callbacks[0] = noting(&rest);
        ok(teng_model_train(s.model, s.data, 18, callbacks, 2));
        read_params(s.model, b);
        close_set(&s);
        assert_int_equal(rest.first, 12);
        assert_memory_equal(whole.loss + 12, rest.loss + 12, 7 * sizeof(double));
        assert_memory_equal(a, b, sizeof a);
    }
}

static void foreign_checkpoints_are_refused(void **state)
{
    (void)state;
    const char *dir = in_folder("foreign");
    set s = open_set(options_of(TENG_GRAPH));
    teng_callback save = teng_checkpoint(dir, 0, 0);
    ok(teng_model_train(s.model, s.data, 2, &save, 1));
    close_set(&s);
    teng_model_options o = options_of(TENG_GRAPH);
    o.seed = 9;
    s = open_set(o);
    refused(teng_model_resume(s.model, s.data, dir), TENG_INVALID, "made with seed 1, the model has seed 9");
    close_set(&s);
    s = open_set(options_of(TENG_GRAPH));
    teng_dataset *other = teng_dataset_create(inputs, 2, 6, fill, NULL);
    refused(teng_model_resume(s.model, other, dir), TENG_INVALID, "another dataset (5 batches");
    teng_dataset_destroy(&other);
    ok(teng_model_resume(s.model, NULL, dir)); /* without a dataset the data begin anew */
    assert_int_equal(teng_model_step(s.model), 2);
    close_set(&s);
    /* damage */
    char *path = in_folder("foreign/step-00000002/model.safetensors");
    assert_int_equal(truncate(path, tg_file_size(path) - 1), 0);
    s = open_set(options_of(TENG_GRAPH));
    refused(teng_model_resume(s.model, s.data, dir), TENG_FORMAT, "step-00000002");
    close_set(&s);
}

static void keep_warning(void *user, tg_log_level level, const char *line)
{
    if (level == TG_LOG_WARN && !*(char *)user) snprintf(user, 300, "%s", line);
}

/* Files may grow to `bytes` only: writing fails as on a full disk. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static teng_status fill_disk(teng_callback *self, teng_train_info *info)
{
    if (info->step == 1) limit_files(100);
    if (info->step == self->every) limit_files(RLIM_INFINITY);
    return TENG_OK;
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    char warning[300] = "";
    tg_log_set_sink(keep_warning, warning);
    signal(SIGXFSZ, SIG_IGN);
    const char *dir = in_folder("full");
    set s = open_set(options_of(TENG_GRAPH));
    /* The save of step 4 waits for that of step 2, which fails; then there is room again. */
    teng_callback callbacks[] = {teng_checkpoint(dir, 2, 1), {.on_step = fill_disk, .every = 4}};
    ok(teng_model_train(s.model, s.data, 5, callbacks, 2));
    if (!strstr(warning, "step 2 could not be saved")) fail_msg("the warning was: %s", warning);
    close_set(&s);
    s = open_set(options_of(TENG_GRAPH));
    ok(teng_model_resume(s.model, s.data, dir));
    assert_int_equal(teng_model_step(s.model), 5);
    close_set(&s);
    /* No room to the end: the training says so, and its steps are made. */
    s = open_set(options_of(TENG_GRAPH));
    callbacks[1].every = -1;
    const teng_status status = teng_model_train(s.model, s.data, 3, callbacks, 2);
    limit_files(RLIM_INFINITY);
    refused(status, TENG_IO, "step-0000000");
    assert_int_equal(teng_model_step(s.model), 3);
    close_set(&s);
    tg_log_set_sink(NULL, NULL);
}

static void saving_problems(void **state)
{
    (void)state;
    tg_lock *lock;
    ok(tg_mkdirs(in_folder("locked")));
    ok(tg_lock_take(in_folder("locked/lock"), &lock));
    set s = open_set(options_of(TENG_GRAPH));
    record r = {0};
    teng_callback callbacks[] = {noting(&r), teng_checkpoint(in_folder("locked"), 1, 1)};
    refused(teng_model_train(s.model, s.data, 2, callbacks, 2), TENG_STATE, "locked/lock");
    assert_int_equal(r.ended, 1); /* on_end of what had begun */
    tg_lock_release(&lock);
    /* A folder below a file: nothing can be made there. */
    ok(tg_file_write(in_folder("file"), "x", 1));
    callbacks[1] = teng_checkpoint(in_folder("file/ckpt"), 1, 1);
    refused(teng_model_train(s.model, s.data, 2, callbacks, 2), TENG_IO, "file");
    close_set(&s);
}

/* ---- values and files ---- */
static void forward_save_load(void **state)
{
    (void)state;
    set s = open_set(options_of(TENG_GRAPH)), t = open_set(options_of(TENG_PYNATIVE));
    ok(teng_model_train(s.model, s.data, 8, NULL, 0));
    char *path = in_folder("weights.safetensors");
    ok(teng_model_save(s.model, path, NULL));
    ok(teng_model_load(t.model, path));
    float x[3 * WIDTH], a[3 * CLASSES], b[3 * CLASSES], params[PARAMS];
    for (int i = 0; i < 3 * WIDTH; i++)
        x[i] = (float)draw(1, 2, i);
    const teng_input in = {"x", {TENG_F32, 2, {3, WIDTH}}};
    const void *data = x;
    ok(teng_model_forward(s.model, &in, &data, 1, a, 3 * CLASSES));
    ok(teng_model_forward(t.model, &in, &data, 1, b, 3 * CLASSES));
    assert_memory_equal(a, b, sizeof a);
    /* by hand */
    read_params(s.model, params);
    const float *gate = params, *up = params + WIDTH * WIDTH, *head = up + WIDTH * WIDTH;
    for (int r = 0; r < 3; r++) {
        double h[WIDTH];
        for (int i = 0; i < WIDTH; i++) {
            double g = 0, u = 0;
            for (int k = 0; k < WIDTH; k++) {
                g += (double)gate[i * WIDTH + k] * (double)x[r * WIDTH + k];
                u += (double)up[i * WIDTH + k] * (double)x[r * WIDTH + k];
            }
            h[i] = g / (1 + exp(-g)) * u;
        }
        for (int c = 0; c < CLASSES; c++) {
            double y = 0;
            for (int k = 0; k < WIDTH; k++)
                y += (double)head[c * WIDTH + k] * h[k];
            assert_true(fabs(y - (double)a[r * CLASSES + c]) < 1e-5);
        }
    }
    refused(teng_model_forward(s.model, &in, &data, 1, a, 7), TENG_INVALID, "bytes");
    refused(teng_model_forward(s.model, &in, &data, 0, a, 7), TENG_INVALID, "0 inputs");
    refused(teng_model_read(s.model, "gate.bias", a, 6), TENG_INVALID, "no parameter gate.bias");
    refused(teng_model_read(s.model, "gate.weight", a, 6), TENG_INVALID, "gate.weight is f32[6,6]");
    refused(teng_model_save(s.model, in_folder("hf"), NULL), TENG_INVALID, "config.json");
    refused(teng_model_load(s.model, in_folder("absent.safetensors")), TENG_IO, "absent.safetensors");
    close_set(&s);
    close_set(&t);
    /* another model's weights */
    teng_cell *wide = teng_nn_linear(4, 4, false, 0.1);
    teng_model *model = teng_model_create(wide, NULL);
    refused(teng_model_load(model, path), TENG_FORMAT, "missing: weight");
    teng_model_destroy(&model);
    teng_cell_destroy(&wide);
}

static void evaluation_is_a_weighted_mean(void **state)
{
    (void)state;
    set s = open_set(options_of(TENG_GRAPH));
    ok(teng_model_train(s.model, s.data, 3, NULL, 0));
    teng_eval_info all, first, again;
    ok(teng_model_eval(s.model, s.data, 0, &all));
    ok(teng_model_eval(s.model, s.data, 1, &first));
    ok(teng_model_eval(s.model, s.data, 0, &again));
    assert_true(all.loss == again.loss && all.tokens == again.tokens);
    int64_t tokens = 0, of_first = 0;
    for (int64_t i = 0; i < 5; i++)
        for (int64_t at = 0; at < ROWS * LEN; at++) {
            const int64_t len = i % 3 == 2 ? 7 : LEN, r = at / LEN, t = at % LEN;
            const bool counts = t < len && (r * r + t) % 9 != 0;
            tokens += counts;
            of_first += counts && i == 0;
        }
    assert_int_equal(all.tokens, tokens);
    assert_int_equal(first.tokens, of_first);
    /* The place in the data is kept: training goes on as if nothing had been evaluated. */
    record r = {0}, undisturbed = {0};
    float params[PARAMS];
    teng_callback callback = noting(&r);
    ok(teng_model_train(s.model, s.data, 6, &callback, 1));
    close_set(&s);
    teng_model_options o = options_of(TENG_GRAPH);
    train(&o, 6, &undisturbed, params);
    assert_memory_equal(r.loss + 4, undisturbed.loss + 4, 3 * sizeof(double));
}

/* ---- what is refused ---- */
static teng_status fill_badly(void *user, teng_batch *b)
{
    const int what = *(const int *)user;
    memset(b->data[0], 0, sizeof(float) * ROWS * LEN * WIDTH);
    memset(b->data[1], 0, sizeof(int32_t) * ROWS * LEN);
    if (what == 0) b->desc[0].dims[1] = LEN + 1;
    if (what == 1) b->desc[1].dims[0] = ROWS - 1;
    if (what == 2) return TENG_IO;
    if (what == 3) return teng_fail(TENG_FORMAT, "row 17 is torn");
    return TENG_OK;
}

static void bad_batches(void **state)
{
    (void)state;
    static const struct {
        int what;
        teng_status status;
        const char *words;
    } cases[] = {{0, TENG_INVALID, "batch 0 of epoch 0: input x is f32[8,13,6]; at most f32[8,12,6]"},
                 {1, TENG_INVALID, "input labels is i32[7,12]"},
                 {2, TENG_IO, "the fill function failed at batch 0 of epoch 0"},
                 {3, TENG_FORMAT, "row 17 is torn"}};
    set s = open_set(options_of(TENG_GRAPH));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int what = cases[i].what;
        teng_dataset *bad = teng_dataset_create(inputs, 2, 5, fill_badly, &what);
        refused(teng_model_train(s.model, bad, 1, NULL, 0), cases[i].status, cases[i].words);
        teng_dataset_destroy(&bad);
    }
    close_set(&s);
}

static void bad_datasets(void **state)
{
    (void)state;
    teng_input in[2] = {inputs[0], inputs[1]};
    refused_null(teng_dataset_create(in, 0, 5, fill, NULL), "0 inputs; 1 to 8");
    refused_null(teng_dataset_create(in, 9, 5, fill, NULL), "9 inputs; 1 to 8");
    refused_null(teng_dataset_create(in, 2, 0, fill, NULL), "an epoch of 0 batches");
    refused_null(teng_dataset_create(in, 2, 5, NULL, NULL), "fill function is NULL");
    in[1].name = "x";
    refused_null(teng_dataset_create(in, 2, 5, fill, NULL), "two inputs are named x");
    in[1].name = NULL;
    refused_null(teng_dataset_create(in, 2, 5, fill, NULL), "input 1 has no name");
    in[1] = (teng_input){"scale", {TENG_F32, 0, {0}}};
    refused_null(teng_dataset_create(in, 2, 5, fill, NULL),
                 "input scale is f32[]; dimension 0 must be the batch");
    teng_token_options o = teng_token_options_default();
    refused_null(teng_dataset_tokens(&o), "no files");
}

static void bad_options(void **state)
{
    (void)state;
    teng_cell *cell = make_net();
    teng_model_options o = options_of(TENG_GRAPH);
    o.optimizer.beta2 = 1;
    refused_null(teng_model_create(cell, &o), "optimizer.beta2 is 1; it must be in [0, 1)");
    o = options_of(TENG_GRAPH);
    o.schedule.lr = NAN;
    refused_null(teng_model_create(cell, &o), "schedule.lr is nan");
    o = options_of(TENG_GRAPH);
    o.micro_batches = 0;
    refused_null(teng_model_create(cell, &o), "micro_batches is 0");
    o = options_of(TENG_GRAPH);
    o.schedule.kind = TENG_WSD;
    refused_null(teng_model_create(cell, &o), "schedule.decay_steps is 0");
    o = options_of(TENG_GRAPH);
    o.device = "abacus";
    refused_null(teng_model_create(cell, &o), "abacus");
    refused_null(teng_model_create(NULL, NULL), "NULL");
    o = options_of(TENG_GRAPH);
    static const char *const passes[] = {"defualt"};
    o.passes = passes;
    set s = {.cell = cell, .data = make_data(), .model = teng_model_create(cell, &o)};
    refused(teng_model_train(s.model, s.data, 1, NULL, 0), TENG_INVALID, "no pass is named \"defualt\"");
    refused(teng_model_train(s.model, s.data, 0, NULL, 0), TENG_INVALID, "0 steps");
    refused(teng_model_train(s.model, NULL, 1, NULL, 0), TENG_INVALID, "the dataset is NULL");
    refused(teng_model_train(NULL, s.data, 1, NULL, 0), TENG_INVALID, "the model is NULL");
    teng_model_destroy(&s.model);
    o = options_of(TENG_GRAPH);
    o.memory_budget = 100;
    s.model = teng_model_create(cell, &o);
    refused(teng_model_train(s.model, s.data, 1, NULL, 0), TENG_MEMORY, "budget");
    teng_model_destroy(&s.model);
    o = options_of(TENG_PYNATIVE);
    o.recompute = TENG_RECOMPUTE_SELECTIVE;
    refused_null(teng_model_create(cell, &o), "use context.mode=graph");
    o.recompute = TENG_RECOMPUTE_NONE;
    o.offload_optimizer = folder;
    refused_null(teng_model_create(cell, &o), "memory.offload moves values");
    o.recompute = (teng_recompute)9;
    refused_null(teng_model_create(cell, &o), "recompute is 9; it must be in [0, 3]");
    close_set(&s);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    return tg_remove_tree(folder) == TENG_OK ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_are_equal_to_the_bit),
        cmocka_unit_test(micro_batches_make_the_same_step),
        cmocka_unit_test(sgd_and_schedules),
        cmocka_unit_test(callbacks_stop_and_fail),
        cmocka_unit_test(monitors_print_where_they_are_told),
        cmocka_unit_test(resume_is_equal_to_the_bit),
        cmocka_unit_test(foreign_checkpoints_are_refused),
        cmocka_unit_test(a_full_disk_loses_nothing),
        cmocka_unit_test(saving_problems),
        cmocka_unit_test(forward_save_load),
        cmocka_unit_test(evaluation_is_a_weighted_mean),
        cmocka_unit_test(bad_batches),
        cmocka_unit_test(bad_datasets),
        cmocka_unit_test(bad_options),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
