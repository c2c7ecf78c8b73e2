/*
 * Draws loss curves as SVG text. The panel is opaque white with dark text, so that it reads the same on white
 * and dark pages; colours are those of Okabe and Ito, told apart by people who see few colours. Numbers are
 * printed with fixed digits: the same data give the same bytes.
 */
#include "monitor/plot.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "monitor/plot_scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MARGIN_LEFT 74.0
#define MARGIN_RIGHT 30.0
#define MARGIN_TOP 58.0
#define MARGIN_BOTTOM 62.0
#define LEGEND_NAME 30    /* characters of a run's name that are shown */
#define SMOOTH_SHARE 0.03 /* the smoothed curve averages about this share of the run */
#define SMOOTH_MIN 20     /* shorter runs are drawn as they are */

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#555555"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

typedef struct curves {
    tg_plot_curve raw, smooth, eval;
    double last_train, last_eval; /* NaN: none */
} curves;

typedef struct picture {
    const tg_plot_options *opt;
    const tg_plot_run *runs;
    int n;
    curves *curves;
    double width, height;
    double x_unit; /* data are divided by this: seconds, minutes or hours */
    const char *x_title;
    tg_plot_scale x, y;
    tg_strbuf *out;
} picture;

bool tg_plot_axis_parse(const char *word, tg_plot_axis *out)
{
    static const char *const words[] = {"steps", "tokens", "hours"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(word, words[i])) {
            *out = (tg_plot_axis)i;
            return true;
        }
    return false;
}

/* ---- data ---- */

static double x_of(tg_plot_axis axis, const tg_metrics_point *p)
{
    return axis == TG_PLOT_STEPS ? (double)p->step : axis == TG_PLOT_TOKENS ? p->tokens : p->hours;
}

/* A curve of what can be drawn; a loss that is not finite (or not positive on a log axis) becomes a gap. */
static bool take(const tg_plot_options *opt, const tg_metrics_point *points, size_t n, tg_plot_curve *out)
{
    for (size_t i = 0; i < n; i++) {
        tg_plot_xy p = {x_of(opt->x, &points[i]), (double)points[i].loss};
        if (!isfinite(p.x)) continue;
        if (!isfinite(p.y) || (opt->log_y && p.y <= 0)) p.y = (double)NAN;
        if (!tg_vec_push(out, p)) return false;
    }
    return true;
}

static double last_value(const tg_plot_curve *c)
{
    for (size_t i = c->len; i-- > 0;)
        if (!isnan(c->data[i].y)) return c->data[i].y;
    return (double)NAN;
}

static teng_status collect(picture *pic)
{
    for (int r = 0; r < pic->n; r++) {
        const tg_metrics_series *s = pic->runs[r].series;
        curves *c = &pic->curves[r];
        if (!take(pic->opt, s->train.data, s->train.len, &c->raw) ||
            !take(pic->opt, s->train.data, s->train.len, &c->smooth) ||
            !take(pic->opt, s->eval.data, s->eval.len, &c->eval))
            return TENG_MEMORY;
        double span = c->smooth.len < SMOOTH_MIN ? 1 : fmax(3, SMOOTH_SHARE * (double)c->smooth.len);
        tg_plot_smooth(c->smooth.data, c->smooth.len, span);
        c->last_train = last_value(&c->smooth);
        c->last_eval = last_value(&c->eval);
    }
    return TENG_OK;
}

static void widen(const tg_plot_curve *c, double box[4], bool *any)
{
    for (size_t i = 0; i < c->len; i++) {
        tg_plot_xy p = c->data[i];
        if (isnan(p.y)) continue;
        box[0] = *any ? fmin(box[0], p.x) : p.x;
        box[1] = *any ? fmax(box[1], p.x) : p.x;
        box[2] = *any ? fmin(box[2], p.y) : p.y;
        box[3] = *any ? fmax(box[3], p.y) : p.y;
        *any = true;
    }
}

static teng_status fit(picture *pic)
{
    double box[4] = {0};
    bool any = false;
    for (int r = 0; r < pic->n; r++) {
        widen(&pic->curves[r].raw, box, &any);
        widen(&pic->curves[r].eval, box, &any);
    }
    if (!any)
        return tg_fail(TENG_INVALID, "nothing to plot: no finite%s loss in %s%s",
                       pic->opt->log_y ? " positive" : "", pic->runs[0].name ? pic->runs[0].name : "the run",
                       pic->n > 1 ? " and the other runs" : "");
    pic->x_unit = 1;
    pic->x_title = pic->opt->x == TG_PLOT_STEPS ? "steps" : "tokens";
    if (pic->opt->x == TG_PLOT_HOURS) {
        pic->x_unit = box[1] >= 2 ? 1 : box[1] >= 2 / 60.0 ? 1 / 60.0 : 1 / 3600.0;
        pic->x_title = box[1] >= 2 ? "hours" : box[1] >= 2 / 60.0 ? "minutes" : "seconds";
    }
    double right = pic->width - MARGIN_RIGHT, bottom = pic->height - MARGIN_BOTTOM;
    int x_ticks = (int)((right - MARGIN_LEFT) / 100), y_ticks = (int)((bottom - MARGIN_TOP) / 60);
    /* A run is seen from its start. */
    pic->x = tg_plot_scale_make(fmin(0, box[0] / pic->x_unit), box[1] / pic->x_unit, MARGIN_LEFT, right,
                                false, x_ticks < 2 ? 2 : x_ticks, false);
    pic->y = tg_plot_scale_make(box[2], box[3], bottom, MARGIN_TOP, pic->opt->log_y,
                                y_ticks < 2 ? 2 : y_ticks, true);
    for (int r = 0; r < pic->n; r++)
        for (int k = 0; k < 2; k++) {
            tg_plot_curve *c = k ? &pic->curves[r].smooth : &pic->curves[r].raw;
            c->len = tg_plot_thin(c->data, c->len, 0, box[1], (int)pic->width);
        }
    return TENG_OK;
}

/* ---- drawing ---- */

static void put_text(tg_strbuf *out, const char *text, size_t limit)
{
    tg_strbuf clean = {0};
    tg_metrics_clean_text(&clean, text);
    size_t shown = 0;
    for (const char *p = tg_strbuf_str(&clean); *p; p++) {
        if (((unsigned char)*p & 0xc0) != 0x80 && ++shown > limit) { /* a character begins */
            tg_strbuf_puts(out, "\xe2\x80\xa6");
            break;
        }
        if (*p == '&')
            tg_strbuf_puts(out, "&amp;");
        else if (*p == '<')
            tg_strbuf_puts(out, "&lt;");
        else if (*p == '>')
            tg_strbuf_puts(out, "&gt;");
        else
            tg_strbuf_putc(out, *p);
    }
    out->failed |= clean.failed;
    tg_strbuf_free(&clean);
}

static void draw_frame(picture *pic)
{
    tg_strbuf *o = pic->out;
    tg_strbuf_printf(
        o,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" "
        "font-size=\"13\" fill=\"#3d444d\">\n",
        pic->width, pic->height, pic->width, pic->height);
    const char *title = pic->opt->title ? pic->opt->title : "Training loss";
    tg_strbuf_puts(o, "<title>");
    put_text(o, title, 200);
    tg_strbuf_printf(
        o,
        "</title>\n<rect x=\"0.5\" y=\"0.5\" width=\"%.0f\" height=\"%.0f\" rx=\"8\" fill=\"#ffffff\" "
        "stroke=\"#d0d7de\"/>\n",
        pic->width - 1, pic->height - 1);
    tg_strbuf_printf(o, "<text x=\"%.0f\" y=\"34\" font-size=\"18\" font-weight=\"600\" fill=\"#1f2328\">",
                     MARGIN_LEFT);
    put_text(o, title, (size_t)(pic->width / 11));
    tg_strbuf_puts(o, "</text>\n");
}

static void draw_axes(picture *pic)
{
    tg_strbuf *o = pic->out;
    char buf[32];
    double left = pic->x.p0, right = pic->x.p1, bottom = pic->y.p0, top = pic->y.p1;
    tg_strbuf_puts(o, "<g stroke=\"#e6e9ec\" stroke-width=\"1\">\n");
    for (int i = 0; i < pic->y.n_ticks; i++) {
        double y = tg_plot_scale_at(&pic->y, pic->y.ticks[i]);
        tg_strbuf_printf(o, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", left, y, right, y);
    }
    for (int i = 0; i < pic->x.n_ticks; i++) {
        double x = tg_plot_scale_at(&pic->x, pic->x.ticks[i]);
        tg_strbuf_printf(o, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x, top, x, bottom);
    }
    tg_strbuf_printf(o, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#8c959f\"/>\n</g>\n",
                     left, bottom, right, bottom);
    tg_strbuf_puts(o, "<g text-anchor=\"end\">\n");
    for (int i = 0; i < pic->y.n_ticks; i++)
        tg_strbuf_printf(o, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", left - 9,
                         tg_plot_scale_at(&pic->y, pic->y.ticks[i]) + 4.5,
                         tg_plot_tick_text(buf, &pic->y, pic->y.ticks[i]));
    tg_strbuf_puts(o, "</g>\n<g text-anchor=\"middle\">\n");
    for (int i = 0; i < pic->x.n_ticks; i++)
        tg_strbuf_printf(o, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                         tg_plot_scale_at(&pic->x, pic->x.ticks[i]), bottom + 20,
                         tg_plot_tick_text(buf, &pic->x, pic->x.ticks[i]));
    tg_strbuf_printf(o, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", (left + right) / 2, bottom + 44,
                     pic->x_title);
    tg_strbuf_printf(
        o, "<text transform=\"translate(22 %.1f) rotate(-90)\">loss (nats per token)%s</text>\n</g>\n",
        (top + bottom) / 2, pic->opt->log_y ? ", log scale" : "");
}

static void draw_curve(picture *pic, const tg_plot_curve *c, const char *style)
{
    bool pen_down = false;
    tg_strbuf_printf(pic->out,
                     "<path fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\" %s d=\"", style);
    for (size_t i = 0; i < c->len; i++) {
        if (isnan(c->data[i].y)) {
            pen_down = false;
            continue;
        }
        double x = tg_plot_scale_at(&pic->x, c->data[i].x / pic->x_unit);
        double y = tg_plot_scale_at(&pic->y, c->data[i].y);
        bool alone = !pen_down && (i + 1 == c->len || isnan(c->data[i + 1].y));
        tg_strbuf_printf(pic->out, "%s%.1f %.1f", pen_down ? "L" : "M", x, y);
        if (alone) tg_strbuf_puts(pic->out, "h0"); /* a dot: round caps show it */
        pen_down = true;
    }
    tg_strbuf_puts(pic->out, "\"/>\n");
}

static void draw_run(picture *pic, int r)
{
    char style[128];
    const char *colour = colours[r % N_COLOURS];
    const char *dash = r < N_COLOURS ? "" : " stroke-dasharray=\"7 4\""; /* colours come round again */
    curves *c = &pic->curves[r];
    if (c->smooth.len >= SMOOTH_MIN) {
        snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"1\" stroke-opacity=\"0.28\"", colour);
        draw_curve(pic, &c->raw, style);
    }
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2.2\"%s", colour, dash);
    draw_curve(pic, &c->smooth, style);
    tg_strbuf_printf(pic->out, "<g fill=\"#ffffff\" stroke=\"%s\" stroke-width=\"1.8\">\n", colour);
    for (size_t i = 0; i < c->eval.len; i++)
        if (!isnan(c->eval.data[i].y))
            tg_strbuf_printf(pic->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"/>\n",
                             tg_plot_scale_at(&pic->x, c->eval.data[i].x / pic->x_unit),
                             tg_plot_scale_at(&pic->y, c->eval.data[i].y));
    tg_strbuf_puts(pic->out, "</g>\n");
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n > LEGEND_NAME ? LEGEND_NAME + 1 : n;
}

/* Top right, where a loss curve leaves room. */
static void draw_legend(picture *pic)
{
    tg_strbuf *o = pic->out;
    bool evals = false;
    size_t longest = 5;
    for (int r = 0; r < pic->n; r++) {
        size_t n = characters(pic->runs[r].name);
        if (n > longest) longest = n;
        evals |= !isnan(pic->curves[r].last_eval);
    }
    double names = 44 + 7.4 * (double)longest, width = names + 72 + (evals ? 92 : 0);
    double x = pic->x.p1 - width - 6, y = MARGIN_TOP + 6;
    tg_strbuf_printf(o,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"6\" fill=\"#ffffff\" "
                     "fill-opacity=\"0.88\" stroke=\"#e6e9ec\"/>\n",
                     x, y, width, 30 + 20 * pic->n);
    tg_strbuf_puts(o, "<g text-anchor=\"end\" font-size=\"11\" fill=\"#6e7781\">\n");
    tg_strbuf_printf(o, "<text x=\"%.1f\" y=\"%.1f\">train</text>\n", x + names + 60, y + 17);
    if (evals) {
        tg_strbuf_printf(o, "<text x=\"%.1f\" y=\"%.1f\">validation</text>\n", x + names + 152, y + 17);
        tg_strbuf_printf(o, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"none\" stroke=\"#6e7781\"/>\n",
                         x + names + 82, y + 13);
    }
    tg_strbuf_puts(o, "</g>\n");
    for (int r = 0; r < pic->n; r++) {
        double line = y + 37 + 20 * r;
        tg_strbuf_printf(
            o,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2.4\"%s/>\n"
            "<text x=\"%.1f\" y=\"%.1f\">",
            x + 10, line - 4, x + 34, line - 4, colours[r % N_COLOURS],
            r < N_COLOURS ? "" : " stroke-dasharray=\"7 4\"", x + 42, line);
        put_text(o, pic->runs[r].name, LEGEND_NAME);
        tg_strbuf_puts(o, "</text>\n");
        double last[2] = {pic->curves[r].last_train, pic->curves[r].last_eval};
        for (int k = 0; k < 2; k++)
            if (!isnan(last[k]))
                tg_strbuf_printf(
                    o, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"#1f2328\">%.3f</text>\n",
                    x + names + 60 + 92 * k, line, last[k]);
    }
}

static teng_status draw(picture *pic)
{
    TG_TRY(collect(pic));
    TG_TRY(fit(pic));
    draw_frame(pic);
    draw_axes(pic);
    for (int r = 0; r < pic->n; r++)
        draw_run(pic, r);
    draw_legend(pic);
    tg_strbuf_puts(pic->out, "</svg>\n");
    return pic->out->failed ? tg_fail(TENG_MEMORY, "out of memory while drawing a plot") : TENG_OK;
}

teng_status tg_plot_svg(const tg_plot_options *options, const tg_plot_run *runs, int n, tg_strbuf *out)
{
    picture pic = {.opt = options, .runs = runs, .n = n, .out = out};
    pic.width = options->width ? options->width : 960;
    pic.height = options->height ? options->height : 540;
    if (n < 1) return tg_fail(TENG_INVALID, "nothing to plot: give at least one run folder");
    if (pic.width < 320 || pic.height < 200 || pic.width > 10000 || pic.height > 10000)
        return tg_fail(TENG_INVALID, "a plot of %d by %d: use 320 by 200 to 10000 by 10000", options->width,
                       options->height);
    pic.curves = tg_calloc((size_t)n, sizeof *pic.curves);
    if (!pic.curves) return TENG_MEMORY;
    teng_status status = draw(&pic);
    for (int r = 0; r < n; r++) {
        tg_vec_free(&pic.curves[r].raw);
        tg_vec_free(&pic.curves[r].smooth);
        tg_vec_free(&pic.curves[r].eval);
    }
    tg_free(pic.curves);
    return status;
}

/* ---- run folders ---- */

static teng_status read_run(const char *dir, tg_metrics_series *out)
{
    char *path = tg_path_is_dir(dir) ? tg_path_join(dir, "metrics.jsonl") : tg_strdup(dir);
    if (!path) return TENG_MEMORY;
    teng_status status = TENG_OK;
    if (!tg_path_exists(path))
        status = tg_fail(TENG_IO, "%s: no such file: is %s the folder of a run?", path, dir);
    if (status == TENG_OK) status = tg_metrics_read(path, out);
    if (status == TENG_OK && !out->train.len && !out->eval.len)
        status = tg_fail(TENG_INVALID, "%s: no step yet: nothing to plot", path);
    tg_free(path);
    return status;
}

/* The last part of a run's path, or the path itself when another run's ends the same. */
static const char *run_name(const char *const *dirs, int n, int which)
{
    const char *name = tg_path_base(dirs[which]);
    if (!name[0] || !strcmp(name, ".")) return dirs[which];
    for (int i = 0; i < n; i++)
        if (i != which && !strcmp(tg_path_base(dirs[i]), name)) return dirs[which];
    return name;
}

teng_status tg_plot_dirs(const tg_plot_options *options, const char *const *dirs, int n, const char *out_path)
{
    size_t count = n > 0 ? (size_t)n : 1;
    tg_metrics_series *series = tg_calloc(count, sizeof *series);
    tg_plot_run *runs = tg_calloc(count, sizeof *runs);
    tg_strbuf svg = {0};
    teng_status status = series && runs ? TENG_OK : TENG_MEMORY;
    for (int i = 0; status == TENG_OK && i < n; i++) {
        status = read_run(dirs[i], &series[i]);
        runs[i] = (tg_plot_run){run_name(dirs, n, i), &series[i]};
    }
    if (status == TENG_OK) status = tg_plot_svg(options, runs, n, &svg);
    if (status == TENG_OK) status = tg_file_write(out_path, svg.data, svg.len);
    tg_strbuf_free(&svg);
    for (int i = 0; series && i < n; i++)
        tg_metrics_series_free(&series[i]);
    tg_free(series);
    tg_free(runs);
    return status;
}
