/*
 * metrics.jsonl: one JSON object a line, each written in one call, so that a killed run leaves at most one
 * torn line at the end. Types: "run", "step", "eval", "checkpoint", "note". Writing (append), cutting back on
 * resume, reading for plots. NaN and infinite figures are written as null. It knows no trainer: figures come
 * in as structs.
 */
#ifndef TG_MONITOR_METRICS_H
#define TG_MONITOR_METRICS_H

#include "base/json.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "teng/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tg_metrics tg_metrics;

typedef struct tg_metrics_run { /* a process begins or goes on */
    int64_t first_step;         /* steps already done: 0, or where a resumed run goes on */
    int64_t steps;              /* planned */
    int64_t parameters;
    int threads;
    const char *mode, *device, *dtype; /* "graph", "AMD EPYC …", "bf16"; NULL leaves the member out */
    json_t *config;                    /* summary, borrowed; may be NULL */
} tg_metrics_run;

typedef struct tg_metrics_step {
    int64_t step;        /* steps done, counted from 1 */
    double epoch;        /* passes over the data so far */
    float loss;          /* nats per token; reads back to the same float */
    float lr, grad_norm; /* grad_norm before clipping */
    int64_t tokens;      /* trained on so far, all ranks, all runs of the folder */
    double tokens_per_s; /* since the previous line */
    double mfu;          /* fraction of the measured peak; NaN when unknown */
    double step_ms;      /* mean time of a step since the previous line */
    double data_wait;    /* share of that time spent waiting for the batch */
} tg_metrics_step;

typedef struct tg_metrics_eval {
    int64_t step;
    float val_loss;       /* nats per token */
    double bits_per_byte; /* NaN when the bytes are unknown */
    int64_t tokens;       /* evaluated */
} tg_metrics_eval;

/* Opens for appending and creates when absent; a torn last line is cut off. */
teng_status tg_metrics_open(const char *path, tg_metrics **out);
void tg_metrics_close(tg_metrics **metrics);
/* Each writes one line. On failure (disk full) the file is cut back to whole lines and later calls may
 * succeed. */
teng_status tg_metrics_put_run(tg_metrics *m, const tg_metrics_run *run);
teng_status tg_metrics_put_step(tg_metrics *m,
                                const tg_metrics_step *s); /* allocates nothing after the first */
teng_status tg_metrics_put_eval(tg_metrics *m, const tg_metrics_eval *e);
/* Also makes the file durable: what a resumed run relies on is on disk. */
teng_status tg_metrics_put_checkpoint(tg_metrics *m, int64_t step, const char *path, uint64_t bytes,
                                      double seconds);
teng_status tg_metrics_put_note(tg_metrics *m, int64_t step, const char *text);

/* Before a resume from `step`: removes, atomically, a torn last line and every line whose "step" is beyond
 * `step`. Whole lines that are no JSON are kept and warned about. An absent file is fine. */
teng_status tg_metrics_truncate_after(const char *path, int64_t step);

typedef struct tg_metrics_point {
    int64_t step;
    double tokens, hours; /* trained tokens; hours of training steps, without pauses between runs */
    float loss;           /* NaN where the line says null */
    float lr, grad_norm;
    double tokens_per_s, mfu;
} tg_metrics_point;
typedef struct tg_metrics_series {
    TG_VEC(tg_metrics_point) train, eval; /* eval: loss is val_loss; tokens and hours are those of the step */
} tg_metrics_series;
/* Zero-initialise *out, free it with tg_metrics_series_free also after a failure. Steps that occur again
 * replace the earlier ones. A whole line that cannot be read is a TENG_FORMAT error "path:line: …"; a torn
 * last line is ignored. */
teng_status tg_metrics_read(const char *path, tg_metrics_series *out);
void tg_metrics_series_free(tg_metrics_series *series);

/* Appends text as valid UTF-8 on one line: each bad byte becomes U+FFFD, each control character a space. */
void tg_metrics_clean_text(tg_strbuf *out, const char *text);

#endif
