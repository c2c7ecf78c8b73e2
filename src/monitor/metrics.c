/*
 * The writer of metrics.jsonl. Each line goes out in one write() on an O_APPEND descriptor, with no buffer
 * between: what was reported is in the kernel's hands even if the process is killed. Not a database: it never
 * reads back while writing, except to find the end of the last whole line.
 */
#include "monitor/metrics.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tg_metrics {
    int fd;
    char *path;
    tg_strbuf line;
};

/* ---- text ---- */

/* Length of the valid UTF-8 sequence at p (NUL-terminated), 0 when there is none. */
static size_t sequence(const unsigned char *p)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : 4;
    if (n == 1) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    /* Overlong forms, surrogates, beyond U+10FFFF. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)) return 0;
    if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0;
    return n;
}

void tg_metrics_clean_text(tg_strbuf *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        size_t n = sequence(p);
        if (!n)
            tg_strbuf_puts(out, "\xef\xbf\xbd");
        else if (*p < 0x20 || *p == 0x7f)
            tg_strbuf_putc(out, ' ');
        else
            tg_strbuf_add(out, p, n);
        p += n ? n : 1;
    }
}

/* ---- file ---- */

/* Bytes up to and with the last newline. */
static teng_status whole_lines(int fd, const char *path, off_t *out)
{
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0) return tg_fail_errno(TENG_IO, errno, "%s: cannot find its end", path);
    char buf[4096];
    while (end > 0) {
        size_t n = end < (off_t)sizeof buf ? (size_t)end : sizeof buf;
        ssize_t got = pread(fd, buf, n, end - (off_t)n);
        if (got != (ssize_t)n)
            return tg_fail_errno(TENG_IO, got < 0 ? errno : EIO, "%s: cannot read its end", path);
        char *newline = memrchr(buf, '\n', n);
        if (newline) {
            *out = end - (off_t)n + (newline - buf) + 1;
            return TENG_OK;
        }
        end -= (off_t)n;
    }
    *out = 0;
    return TENG_OK;
}

static teng_status cut_torn_line(int fd, const char *path)
{
    struct stat st;
    off_t whole;
    TG_TRY(whole_lines(fd, path, &whole));
    if (fstat(fd, &st)) return tg_fail_errno(TENG_IO, errno, "%s: cannot read its size", path);
    if (whole < st.st_size && ftruncate(fd, whole))
        return tg_fail_errno(TENG_IO, errno, "%s: cannot cut off its torn last line", path);
    return TENG_OK;
}

teng_status tg_metrics_open(const char *path, tg_metrics **out)
{
    *out = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return tg_fail_errno(TENG_IO, errno, "%s: cannot open for appending", path);
    teng_status status = cut_torn_line(fd, path);
    tg_metrics *m = status == TENG_OK ? tg_calloc(1, sizeof *m) : NULL;
    char *name = m ? tg_strdup(path) : NULL;
    if (!name) {
        tg_free(m);
        close(fd);
        return status == TENG_OK ? TENG_MEMORY : status;
    }
    m->fd = fd;
    m->path = name;
    *out = m;
    return TENG_OK;
}

void tg_metrics_close(tg_metrics **metrics)
{
    if (!metrics || !*metrics) return;
    close((*metrics)->fd);
    tg_strbuf_free(&(*metrics)->line);
    tg_free((*metrics)->path);
    tg_free(*metrics);
    *metrics = NULL;
}

static teng_status write_line(tg_metrics *m)
{
    tg_strbuf_putc(&m->line, '\n');
    if (m->line.failed) {
        tg_strbuf_free(&m->line); /* a fresh start for the next line */
        return tg_fail(TENG_MEMORY, "%s: out of memory while writing a line", m->path);
    }
    off_t before = lseek(m->fd, 0, SEEK_END);
    ssize_t n;
    do
        n = write(m->fd, m->line.data, m->line.len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)m->line.len) return TENG_OK;
    int err = n < 0 ? errno : ENOSPC; /* a short write to a file is a full disk */
    if (n > 0 && ftruncate(m->fd, before)) err = errno;
    return tg_fail_errno(TENG_IO, err, "%s: cannot write a line of %zu bytes", m->path, m->line.len);
}

/* ---- lines ---- */

static void begin(tg_metrics *m, const char *type)
{
    tg_strbuf_clear(&m->line);
    tg_strbuf_printf(&m->line, "{\"type\":\"%s\"", type);
}

static void put_int(tg_metrics *m, const char *key, int64_t value)
{
    tg_strbuf_printf(&m->line, ",\"%s\":%lld", key, (long long)value);
}

static void put_real(tg_metrics *m, const char *key, double value)
{
    char buf[32];
    tg_strbuf_printf(&m->line, ",\"%s\":%s", key, tg_json_float(buf, (float)value));
}

static void put_json(tg_metrics *m, const char *key, const json_t *value)
{
    char *text = value ? tg_json_text(value, 0) : NULL;
    if (text)
        tg_strbuf_printf(&m->line, ",\"%s\":%s", key, text);
    else
        m->line.failed = true;
    tg_free(text);
}

static void put_string(tg_metrics *m, const char *key, const char *value)
{
    if (!value) return;
    tg_strbuf clean = {0};
    tg_metrics_clean_text(&clean, value);
    json_t *string = clean.failed ? NULL : json_string(tg_strbuf_str(&clean));
    put_json(m, key, string);
    json_decref(string);
    tg_strbuf_free(&clean);
}

static teng_status end(tg_metrics *m)
{
    tg_strbuf_putc(&m->line, '}');
    return write_line(m);
}

static void put_time(tg_metrics *m)
{
    char iso[32];
    tg_strbuf_printf(&m->line, ",\"time\":\"%s\"", tg_clock_iso(iso, tg_clock_unix()));
}

teng_status tg_metrics_put_run(tg_metrics *m, const tg_metrics_run *run)
{
    begin(m, "run");
    put_int(m, "step", run->first_step);
    put_time(m);
    put_string(m, "version", teng_version());
    put_int(m, "steps", run->steps);
    put_int(m, "parameters", run->parameters);
    put_int(m, "threads", run->threads);
    put_string(m, "mode", run->mode);
    put_string(m, "device", run->device);
    put_string(m, "dtype", run->dtype);
    if (run->config) put_json(m, "config", run->config);
    return end(m);
}

teng_status tg_metrics_put_step(tg_metrics *m, const tg_metrics_step *s)
{
    begin(m, "step");
    put_int(m, "step", s->step);
    put_real(m, "epoch", s->epoch);
    put_real(m, "loss", (double)s->loss);
    put_real(m, "lr", (double)s->lr);
    put_real(m, "grad_norm", (double)s->grad_norm);
    put_int(m, "tokens", s->tokens);
    put_real(m, "tokens_per_s", s->tokens_per_s);
    put_real(m, "mfu", s->mfu);
    put_real(m, "step_ms", s->step_ms);
    put_real(m, "data_wait", s->data_wait);
    return end(m);
}

teng_status tg_metrics_put_eval(tg_metrics *m, const tg_metrics_eval *e)
{
    begin(m, "eval");
    put_int(m, "step", e->step);
    put_real(m, "val_loss", (double)e->val_loss);
    put_real(m, "bits_per_byte", e->bits_per_byte);
    put_int(m, "tokens", e->tokens);
    return end(m);
}

teng_status tg_metrics_put_checkpoint(tg_metrics *m, int64_t step, const char *path, uint64_t bytes,
                                      double seconds)
{
    begin(m, "checkpoint");
    put_int(m, "step", step);
    put_time(m);
    put_string(m, "path", path);
    put_int(m, "bytes", (int64_t)bytes);
    put_real(m, "seconds", seconds);
    TG_TRY(end(m));
    if (fdatasync(m->fd) && errno != EINVAL) /* EINVAL: not a file on a disk */
        return tg_fail_errno(TENG_IO, errno, "%s: cannot make it durable", m->path);
    return TENG_OK;
}

teng_status tg_metrics_put_note(tg_metrics *m, int64_t step, const char *text)
{
    begin(m, "note");
    put_int(m, "step", step);
    put_time(m);
    put_string(m, "text", text);
    return end(m);
}

/* ---- cutting back ---- */

/* Whether a line survives a resume from `step`. */
static bool survives(const char *path, int64_t number, const char *line, size_t len, int64_t step)
{
    json_error_t error;
    json_t *obj = json_loadb(line, len, 0, &error);
    json_t *at = json_object_get(obj, "step"); /* NULL for what is no object, too */
    bool keep = !json_is_integer(at) || json_integer_value(at) <= step;
    if (!obj) tg_warn("%s:%lld: not valid JSON, kept as it is", path, (long long)number);
    json_decref(obj);
    return keep;
}

teng_status tg_metrics_truncate_after(const char *path, int64_t step)
{
    if (!tg_path_exists(path)) return TENG_OK;
    tg_map map;
    TG_TRY(tg_map_open(path, &map));
    tg_strbuf kept = {0};
    const char *p = (const char *)map.data, *stop = p + map.size;
    for (int64_t number = 1; p < stop; number++) {
        const char *newline = memchr(p, '\n', (size_t)(stop - p));
        if (!newline) break;
        size_t len = (size_t)(newline - p) + 1;
        if (survives(path, number, p, len - 1, step)) tg_strbuf_add(&kept, p, len);
        p = newline + 1;
    }
    teng_status status = kept.failed ? TENG_MEMORY : TENG_OK;
    if (status == TENG_OK && kept.len != map.size)
        status = tg_file_write(path, tg_strbuf_str(&kept), kept.len);
    tg_strbuf_free(&kept);
    tg_map_close(&map);
    return status;
}
