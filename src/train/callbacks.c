/*
 * Ready callbacks: loss, time, checkpoints. The monitors print, which nothing else in the library does, to
 * the stream that their maker gave.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "train/model_impl.h"

#include <inttypes.h>

/* ---- loss ---- */
static bool is_due(const teng_callback *self, const teng_train_info *info)
{
    return self->every > 0 && info->step % self->every == 0;
}

static teng_status print_loss(teng_callback *self, teng_train_info *info)
{
    const bool first = !self->state, last = info->step == info->steps || info->stop;
    self->state = self; /* from now on it is not the first */
    if (!info->finite)
        fprintf(self->out, "step %" PRId64 "  dropped: loss %g, gradient norm %g\n", info->step, info->loss,
                info->grad_norm);
    else if (first || last || is_due(self, info))
        fprintf(self->out, "step %" PRId64 "/%" PRId64 "  epoch %.2f  loss %.6f  lr %.3g  grad norm %.4f\n",
                info->step, info->steps, info->epoch, info->loss, info->lr, info->grad_norm);
    fflush(self->out);
    return TENG_OK;
}

static teng_status forget(teng_callback *self, teng_train_info *info)
{
    (void)info;
    self->state = NULL;
    return TENG_OK;
}

teng_callback teng_loss_monitor(int64_t every, FILE *out)
{
    return (teng_callback){.on_begin = forget,
                           .on_step = print_loss,
                           .on_end = forget,
                           .every = every,
                           .out = out ? out : stdout};
}

/* ---- time ---- */
typedef struct pace {
    int64_t first_step, first_tokens, step, tokens; /* at the beginning; at the last line */
    double begin;
} pace;

static teng_status start_clock(teng_callback *self, teng_train_info *info)
{
    pace *p = tg_calloc(1, sizeof *p);
    if (!p) return TENG_MEMORY;
    self->time = tg_clock_seconds();
    *p = (pace){info->step, info->tokens, info->step, info->tokens, self->time};
    self->state = p;
    return TENG_OK;
}

static void print_pace(FILE *out, const char *what, int64_t steps, int64_t tokens, double seconds)
{
    char text[32];
    if (seconds <= 0) return;
    fprintf(out, "%s: %.1f ms a step, %.0f tokens/s, %s\n", what, seconds * 1e3 / (double)steps,
            (double)tokens / seconds, tg_format_seconds(text, seconds));
    fflush(out);
}

static teng_status print_time(teng_callback *self, teng_train_info *info)
{
    if (!is_due(self, info)) return TENG_OK;
    pace *p = self->state;
    const double now = tg_clock_seconds();
    char what[64];
    snprintf(what, sizeof what, "steps %" PRId64 "-%" PRId64, p->step + 1, info->step);
    print_pace(self->out, what, info->step - p->step, info->tokens - p->tokens, now - self->time);
    p->step = info->step;
    p->tokens = info->tokens;
    self->time = now;
    return TENG_OK;
}

static teng_status stop_clock(teng_callback *self, teng_train_info *info)
{
    pace *p = self->state;
    const int64_t steps = info->step - p->first_step;
    if (steps > 0)
        print_pace(self->out, "all steps", steps, info->tokens - p->first_tokens,
                   tg_clock_seconds() - p->begin);
    tg_free(p);
    self->state = NULL;
    return TENG_OK;
}

teng_callback teng_time_monitor(int64_t every, FILE *out)
{
    return (teng_callback){.on_begin = start_clock,
                           .on_step = print_time,
                           .on_end = stop_clock,
                           .every = every,
                           .out = out ? out : stdout};
}

/* ---- checkpoints ---- */
typedef struct saver {
    tg_lock *lock;
    tg_ckpt_writer *writer;
    int64_t saved; /* step of the last save that has not failed so far */
} saver;

static void free_saver(teng_callback *self)
{
    saver *s = self->state;
    if (!s) return;
    tg_ckpt_writer_destroy(&s->writer);
    tg_lock_release(&s->lock);
    tg_free(s);
    self->state = NULL;
}

static teng_status open_saver(const teng_callback *self, const teng_train_info *info, saver *s)
{
    if (!self->dir) return tg_fail(TENG_INVALID, "teng_checkpoint: the folder is NULL");
    TG_TRY(tg_mkdirs(self->dir));
    char *lock = tg_path_join(self->dir, "lock");
    teng_status status = lock ? tg_lock_take(lock, &s->lock) : TENG_MEMORY;
    tg_free(lock);
    if (status == TENG_OK)
        status = tg_ckpt_writer_create(self->dir, self->keep_max, true, (tg_ckpt_team){0}, &s->writer);
    s->saved = info->step;
    return status;
}

static teng_status begin_saving(teng_callback *self, teng_train_info *info)
{
    saver *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    self->state = s;
    const teng_status status = open_saver(self, info, s);
    if (status != TENG_OK) free_saver(self);
    return status;
}

static void look_at_saves(saver *s)
{
    tg_ckpt_done done;
    while (tg_ckpt_writer_poll(s->writer, &done)) {
        if (done.error.status == TENG_OK) continue;
        tg_warn("step %" PRId64 " could not be saved: %s; the next checkpoint tries again", done.step,
                done.error.message);
        s->saved = -1;
    }
}

static teng_status submit(saver *s, const teng_train_info *info)
{
    const tg_core *core = info->model->core;
    json_t *state = json_object();
    teng_status status = state ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK && json_object_set_new(state, "dataset", json_string(info->dataset->identity)) != 0)
        status = tg_fail(TENG_MEMORY, "out of memory for the checkpoint's state");
    if (status == TENG_OK) status = tg_core_submit(core, s->writer, state, false);
    if (status == TENG_OK) s->saved = core->done;
    json_decref(state);
    return status;
}

static teng_status save_when_due(teng_callback *self, teng_train_info *info)
{
    saver *s = self->state;
    if (is_due(self, info) && info->step < info->steps && submit(s, info) != TENG_OK) {
        tg_warn("step %" PRId64 " could not be saved: %s; the next checkpoint tries again", info->step,
                teng_error());
        teng_error_clear();
    }
    look_at_saves(s);
    return TENG_OK;
}

static teng_status save_last(teng_callback *self, teng_train_info *info)
{
    saver *s = self->state;
    teng_status status = TENG_OK;
    if (tg_ckpt_writer_wait(s->writer) != TENG_OK) teng_error_clear(); /* it becomes a warning */
    look_at_saves(s);
    if (s->saved != info->step) {
        status = submit(s, info);
        if (status == TENG_OK) status = tg_ckpt_writer_wait(s->writer);
    }
    free_saver(self);
    return status;
}

teng_callback teng_checkpoint(const char *dir, int64_t every, int keep_max)
{
    return (teng_callback){.on_begin = begin_saving,
                           .on_step = save_when_due,
                           .on_end = save_last,
                           .every = every,
                           .keep_max = keep_max,
                           .dir = dir};
}
