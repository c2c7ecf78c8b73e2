/*
 * What a checkpoint costs a training: how long the loop is kept, how steps slow down while the file is
 * written beside them, and how fast it is written, next to a plain write and fsync of as many bytes in the
 * same folder. Saves and plain writes take turns.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/vec.h"
#include "train/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_BETWEEN 3 /* undisturbed, before each save */
#define BLOCK ((size_t)8 << 20)
#define MAX_STEPS 100000 /* while one save is written */

typedef struct bench {
    tg_bench_step *step;
    tg_ckpt_writer *writer;
    char *dir;
    uint64_t bytes;
    double first_stall; /* after as few steps, in which the thread got memory for the copy */
    TG_VEC(double) alone, beside, stall, write, disk;
} bench;

static teng_status timed_step(bench *b, double *seconds)
{
    const double begin = tg_clock_seconds();
    TG_TRY(tg_bench_step_run(b->step, 1, false));
    *seconds = tg_clock_seconds() - begin;
    return TENG_OK;
}

static teng_status submit(bench *b)
{
    json_t *state = json_object();
    const double begin = tg_clock_seconds();
    const teng_status status =
        state ? tg_core_submit(tg_bench_step_core(b->step), b->writer, state, false) : TENG_MEMORY;
    const double stall = tg_clock_seconds() - begin;
    json_decref(state);
    if (status != TENG_OK) return status;
    return tg_vec_push(&b->stall, stall) ? TENG_OK : TENG_MEMORY;
}

/* A save, and steps until it is written. */
static teng_status one_save(bench *b)
{
    double seconds;
    for (int i = 0; i < STEPS_BETWEEN; i++) {
        TG_TRY(timed_step(b, &seconds));
        if (!tg_vec_push(&b->alone, seconds)) return TENG_MEMORY;
    }
    TG_TRY(submit(b));
    tg_ckpt_done done;
    for (int i = 0; !tg_ckpt_writer_poll(b->writer, &done); i++) {
        if (i == MAX_STEPS) return tg_fail(TENG_STATE, "a checkpoint is not written after %d steps", i);
        TG_TRY(timed_step(b, &seconds));
        if (!tg_vec_push(&b->beside, seconds)) return TENG_MEMORY;
    }
    if (done.error.status != TENG_OK) return tg_error_give(&done.error);
    b->bytes = done.bytes;
    return tg_vec_push(&b->write, done.seconds) ? TENG_OK : TENG_MEMORY;
}

static teng_status write_bytes(int fd, const char *path, const char *block, uint64_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = write(fd, block, bytes < BLOCK ? (size_t)bytes : BLOCK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tg_fail_errno(TENG_IO, errno, "writing %s", path);
        bytes -= (uint64_t)n;
    }
    return fsync(fd) == 0 ? TENG_OK : tg_fail_errno(TENG_IO, errno, "writing %s", path);
}

static teng_status plain_write(bench *b)
{
    char *path = tg_path_join(b->dir, "plain"), *block = tg_alloc(BLOCK);
    teng_status status = path && block ? TENG_OK : TENG_MEMORY;
    int fd = -1;
    if (status == TENG_OK) {
        for (size_t i = 0; i < BLOCK; i++)
            block[i] = (char)(i * 2654435761u >> 13);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0) status = tg_fail_errno(TENG_IO, errno, "making %s", path);
    }
    if (status == TENG_OK) {
        const double begin = tg_clock_seconds();
        status = write_bytes(fd, path, block, b->bytes);
        if (status == TENG_OK && !tg_vec_push(&b->disk, tg_clock_seconds() - begin)) status = TENG_MEMORY;
    }
    if (fd >= 0) close(fd);
    if (fd >= 0) unlink(path);
    tg_free(path);
    tg_free(block);
    return status;
}

static teng_status measure(bench *b, const tg_config *cfg, const tg_bench_checkpoint_options *o)
{
    TG_TRY(tg_mkdirs(o->dir));
    b->dir = tg_path_join(o->dir, "teng-bench-XXXXXX");
    if (!b->dir) return TENG_MEMORY;
    if (!mkdtemp(b->dir)) {
        const teng_status status = tg_fail_errno(TENG_IO, errno, "a folder for checkpoints in %s", o->dir);
        tg_free(b->dir);
        b->dir = NULL;
        return status;
    }
    TG_TRY(tg_bench_step_open(cfg, &b->step));
    TG_TRY(tg_bench_step_run(b->step, 2, false)); /* from here on the optimizer has its states */
    TG_TRY(tg_ckpt_writer_create(b->dir, 1, cfg->checkpoint.async, (tg_ckpt_team){0}, &b->writer));
    tg_core_prepare_saves(tg_bench_step_core(b->step), b->writer);
    TG_TRY(one_save(b));
    b->first_stall = b->stall.data[0];
    b->alone.len = b->beside.len = b->stall.len = b->write.len = 0;
    for (int64_t i = 0; i < o->saves; i++) {
        TG_TRY(one_save(b));
        TG_TRY(plain_write(b));
    }
    return TENG_OK;
}

static tg_bench_stat in_ms(double *seconds, size_t n)
{
    const tg_bench_stat s = tg_bench_stat_of(seconds, (int64_t)n);
    return (tg_bench_stat){s.median * 1e3, s.min * 1e3, s.max * 1e3, s.n};
}

static json_t *figures(bench *b, const tg_config *cfg)
{
    const tg_bench_stat alone = in_ms(b->alone.data, b->alone.len),
                        stall = in_ms(b->stall.data, b->stall.len),
                        beside = in_ms(b->beside.data, b->beside.len);
    const tg_bench_stat write = tg_bench_stat_of(b->write.data, (int64_t)b->write.len),
                        disk = tg_bench_stat_of(b->disk.data, (int64_t)b->disk.len);
    const double gb = (double)b->bytes * 1e-9;
    return json_pack("{s:o, s:o, s:f, s:f, s:o, s:I, s:o, s:f, s:o, s:f, s:f, s:b}", "step_ms",
                     tg_bench_stat_json(alone), "stall_ms", tg_bench_stat_json(stall), "stall_share",
                     stall.median / alone.median, "first_stall_ms", b->first_stall * 1e3,
                     "step_ms_while_writing", tg_bench_stat_json(beside), "bytes", (json_int_t)b->bytes,
                     "write_s", tg_bench_stat_json(write), "write_gb_s", gb / write.median, "disk_s",
                     tg_bench_stat_json(disk), "disk_gb_s", gb / disk.median, "disk_share",
                     disk.median / write.median, "async", (int)cfg->checkpoint.async);
}

teng_status tg_bench_checkpoint(const tg_config *cfg, const tg_bench_checkpoint_options *options,
                                json_t **out)
{
    bench b = {0};
    teng_status status = measure(&b, cfg, options);
    tg_error error;
    tg_error_take(&error);
    tg_ckpt_writer_destroy(&b.writer);
    if (b.dir && tg_remove_tree(b.dir) != TENG_OK && status == TENG_OK) {
        status = teng_error_status();
        tg_error_take(&error);
    }
    teng_error_clear();
    if (status == TENG_OK)
        status = tg_bench_answer(figures(&b, cfg), out);
    else if (error.status != TENG_OK)
        tg_error_give(&error);
    else
        tg_fail(status, "measuring checkpoints: out of memory");
    tg_bench_step_close(&b.step);
    tg_vec_free(&b.alone);
    tg_vec_free(&b.beside);
    tg_vec_free(&b.stall);
    tg_vec_free(&b.write);
    tg_vec_free(&b.disk);
    tg_free(b.dir);
    return status;
}
