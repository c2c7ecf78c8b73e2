/* The arithmetic of a plot: axes with round ticks, smoothing, thinning. It draws nothing. */
#ifndef TG_MONITOR_PLOT_SCALE_H
#define TG_MONITOR_PLOT_SCALE_H

#include "base/vec.h"

#include <stdbool.h>
#include <stddef.h>

#define TG_PLOT_TICKS 24

typedef struct tg_plot_scale {
    double lo, hi; /* data shown */
    double p0, p1; /* where they lie on the page */
    bool log;
    int n_ticks;
    double ticks[TG_PLOT_TICKS];
    double step; /* between ticks, for their labels; log: 0 */
} tg_plot_scale;

/* A scale around data from lo to hi (widened when they are equal) with about `want` round ticks. With `snap`
 * the ends are moved out to ticks. log needs lo > 0. */
tg_plot_scale tg_plot_scale_make(double lo, double hi, double p0, double p1, bool log, int want, bool snap);
double tg_plot_scale_at(const tg_plot_scale *s, double value);
/* "0.25", "1.5k", "20M": as few digits as tell the ticks apart. buf >= 32 bytes; returns buf. */
char *tg_plot_tick_text(char *buf, const tg_plot_scale *s, double value);

typedef struct tg_plot_xy {
    double x, y;
} tg_plot_xy;
typedef TG_VEC(tg_plot_xy) tg_plot_curve;

/* Exponential mean over about `span` points, fewer at the start (a sixth of the points so far), where
 * losses fall fast and a long mean would lag. NaN points pass through and do not count. In place. */
void tg_plot_smooth(tg_plot_xy *points, size_t n, double span);
/* At most two points for each of `columns` equal pieces of [lo, hi]: the smallest and the largest y, in
 * order. NaN points stay, as gaps. In place; returns how many are left. */
size_t tg_plot_thin(tg_plot_xy *points, size_t n, double lo, double hi, int columns);

#endif
