/* Axes, smoothing and thinning for plots. Plain functions of numbers; no text but tick labels. */
#include "monitor/plot_scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* 1, 2 or 5 times a power of ten, at least `raw`. */
static double round_step(double raw)
{
    double base = pow(10, floor(log10(raw) + 1e-9));
    double f = raw / base;
    return base * (f <= 1 + 1e-9 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}

static void linear_ticks(tg_plot_scale *s, int want, bool snap)
{
    s->step = round_step((s->hi - s->lo) / want);
    if (snap) {
        s->lo = floor(s->lo / s->step + 1e-9) * s->step;
        s->hi = ceil(s->hi / s->step - 1e-9) * s->step;
    }
    double first = ceil(s->lo / s->step - 1e-9);
    for (int i = 0; i < TG_PLOT_TICKS; i++) {
        double tick = (first + i) * s->step;
        if (tick > s->hi + s->step * 1e-9) break;
        s->ticks[s->n_ticks++] = tick;
    }
}

/* Marks of each decade, sparse to dense: the densest list that gives few enough ticks. */
static const double decades[][10] = {
    {1, 0}, {1, 3, 0}, {1, 2, 5, 0}, {1, 1.5, 2, 3, 5, 7, 0}, {1, 1.2, 1.5, 2, 2.5, 3, 4, 6, 8, 0}};

static int log_marks(const tg_plot_scale *s, const double *marks, double *out)
{
    int n = 0;
    for (double base = pow(10, floor(log10(s->lo))); base <= s->hi; base *= 10)
        for (const double *m = marks; *m > 0; m++) {
            double tick = base * *m;
            if (tick < s->lo * (1 - 1e-9) || tick > s->hi * (1 + 1e-9)) continue;
            if (n == TG_PLOT_TICKS) return n + 1;
            out[n++] = tick;
        }
    return n;
}

static void log_ticks(tg_plot_scale *s, int want)
{
    double found[TG_PLOT_TICKS];
    for (size_t i = 0; i < sizeof decades / sizeof *decades; i++) {
        int n = log_marks(s, decades[i], found);
        if (n > TG_PLOT_TICKS || (n > want * 3 / 2 && s->n_ticks > 1)) return;
        s->n_ticks = n;
        memcpy(s->ticks, found, sizeof found);
    }
    if (s->n_ticks >= 3) return;
    tg_plot_scale straight = {.lo = s->lo, .hi = s->hi}; /* a narrow range: even steps tell more */
    linear_ticks(&straight, want, false);
    s->n_ticks = straight.n_ticks;
    s->step = straight.step;
    memcpy(s->ticks, straight.ticks, sizeof s->ticks);
}

tg_plot_scale tg_plot_scale_make(double lo, double hi, double p0, double p1, bool log, int want, bool snap)
{
    tg_plot_scale s = {.lo = lo, .hi = hi, .p0 = p0, .p1 = p1, .log = log};
    if (log) {
        double pad = hi > lo * 1.001 ? pow(hi / lo, 0.04) : 1.1;
        if (snap) {
            s.lo /= pad;
            s.hi *= pad;
        } else if (!(hi > lo)) {
            s.hi = lo * 1.1;
        }
        log_ticks(&s, want);
        return s;
    }
    if (!(hi - lo > fabs(hi) * 1e-9)) {
        double pad = fabs(hi) > 0 ? fabs(hi) * 0.1 : 1;
        s.lo -= snap ? pad : 0;
        s.hi += pad;
    }
    linear_ticks(&s, want, snap);
    return s;
}

double tg_plot_scale_at(const tg_plot_scale *s, double value)
{
    double f = s->log ? log(value / s->lo) / log(s->hi / s->lo) : (value - s->lo) / (s->hi - s->lo);
    return s->p0 + f * (s->p1 - s->p0);
}

char *tg_plot_tick_text(char *buf, const tg_plot_scale *s, double value)
{
    static const struct {
        double size;
        const char *unit;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
    double top = fabs(s->hi) > fabs(s->lo) ? fabs(s->hi) : fabs(s->lo);
    size_t u = 0;
    while (u < 4 && top < units[u].size)
        u++;
    double v = value / units[u].size;
    if (fabs(v) < 1e-12) return strcpy(buf, "0");
    double resolution = s->step > 0 ? s->step / units[u].size : fabs(v) / 10; /* log: two digits */
    int decimals = (int)ceil(-log10(resolution) - 1e-6);
    decimals = decimals < 0 ? 0 : decimals > 9 ? 9 : decimals;
    int n = snprintf(buf, 24, "%.*f", decimals, v);
    if (decimals && (s->step <= 0 || units[u].size > 1)) { /* "2" on log axes, "2k": no ".0" */
        while (n > 0 && buf[n - 1] == '0')
            buf[--n] = 0;
        if (n > 0 && buf[n - 1] == '.') buf[--n] = 0;
    }
    return strcat(buf, units[u].unit);
}

void tg_plot_smooth(tg_plot_xy *points, size_t n, double span)
{
    double mean = 0, seen = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(points[i].y)) continue;
        double now = fmin(span, 1 + seen++ / 6);
        mean += 2 / (now + 1) * (points[i].y - mean);
        points[i].y = mean;
    }
}

size_t tg_plot_thin(tg_plot_xy *points, size_t n, double lo, double hi, int columns)
{
    if (n <= (size_t)columns * 2 || !(hi > lo)) return n;
    size_t kept = 0, i = 0;
    while (i < n) {
        if (isnan(points[i].y)) {
            if (!kept || !isnan(points[kept - 1].y)) points[kept++] = points[i];
            i++;
            continue;
        }
        double column = floor((points[i].x - lo) / (hi - lo) * columns);
        size_t low = i, high = i;
        for (i++; i < n && !isnan(points[i].y) && floor((points[i].x - lo) / (hi - lo) * columns) == column;
             i++) {
            if (points[i].y < points[low].y) low = i;
            if (points[i].y > points[high].y) high = i;
        }
        tg_plot_xy first = points[low < high ? low : high], second = points[low < high ? high : low];
        points[kept++] = first;
        if (low != high) points[kept++] = second;
    }
    return kept;
}
