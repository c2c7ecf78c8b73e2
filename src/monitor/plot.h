/*
 * Loss curves as SVG: several runs in one picture, training loss (raw, light; smoothed, bold) and validation
 * points, against steps, tokens or hours. Readable on white and dark pages. It draws metrics.jsonl only; it
 * is no chart library.
 */
#ifndef TG_MONITOR_PLOT_H
#define TG_MONITOR_PLOT_H

#include "monitor/metrics.h"

typedef enum tg_plot_axis { TG_PLOT_STEPS, TG_PLOT_TOKENS, TG_PLOT_HOURS } tg_plot_axis;

typedef struct tg_plot_options {
    tg_plot_axis x;
    bool log_y;
    const char *title; /* NULL: "Training loss" */
    int width, height; /* 0: 960 by 540; at least 320 by 200 */
} tg_plot_options;

typedef struct tg_plot_run {
    const char *name; /* any bytes; shown in the legend */
    const tg_metrics_series *series;
} tg_plot_run;

/* "steps", "tokens" or "hours"; false for another word. */
bool tg_plot_axis_parse(const char *word, tg_plot_axis *out);
/* The picture of n >= 1 runs as SVG text. TENG_INVALID when there is no finite loss to draw. */
teng_status tg_plot_svg(const tg_plot_options *options, const tg_plot_run *runs, int n, tg_strbuf *out);
/* Reads DIR/metrics.jsonl of each run folder (or a metrics file named itself) and writes the picture
 * atomically. */
teng_status tg_plot_dirs(const tg_plot_options *options, const char *const *dirs, int n,
                         const char *out_path);

#endif
