/*
 * A schedule as a picture: a row a stage over the simulated time. Opaque white, colours of Okabe and Ito,
 * fixed digits: the same schedule gives the same bytes. No scripts, no fonts but the viewer's own.
 */
#include "base/fail.h"
#include "parallel/pipe_schedule.h"

#include <stdio.h>

#define LEFT 76.0
#define TOP 64.0
#define ROW 34.0
#define PITCH 44.0
#define RIGHT 24.0
#define FONT "font-family=\"Helvetica, Arial, sans-serif\""

typedef struct colour {
    const char *fill, *text, *name;
} colour;

/* Later chunks are paler. */
static double opacity(const tg_pipe_schedule *s, int chunk)
{
    return 1 - 0.5 * chunk / s->chunks;
}

static void label(tg_strbuf *out, double x, double y, const char *anchor, int size, const char *fill,
                  const char *text)
{
    tg_strbuf_printf(
        out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", x, y,
        anchor, size, fill, text);
}

static const colour colours[] = {{"#56b4e9", "#000000", "forward"},
                                 {"#009e73", "#ffffff", "backward"},
                                 {"#009e73", "#ffffff", "input gradient"},
                                 {"#e69f00", "#000000", "weight gradient"}};

static void legend(const tg_pipe_schedule *s, double y, tg_strbuf *out)
{
    double x = LEFT;
    for (int w = TG_PIPE_FORWARD; w <= TG_PIPE_WEIGHT_GRAD; w++) {
        if (s->kind == TG_PIPE_ZERO_BUBBLE ? w == TG_PIPE_BACKWARD : w > TG_PIPE_BACKWARD) continue;
        tg_strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n", x,
                         y - 11, colours[w].fill);
        label(out, x + 20, y, "start", 12, "#333333", colours[w].name);
        x += 130;
    }
    if (s->chunks > 1) label(out, x, y, "start", 12, "#333333", "paler: later chunks of the stage");
}

static void stage_row(const tg_pipe_schedule *s, const tg_pipe_times *t, int stage, double scale,
                      tg_strbuf *out)
{
    const tg_pipe_action *a = tg_pipe_actions(s, stage);
    const double y = TOP + PITCH * stage;
    char text[32];
    snprintf(text, sizeof text, "stage %d", stage);
    label(out, LEFT - 10, y + ROW / 2 + 4, "end", 12, "#333333", text);
    tg_strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#eeeeee\"/>\n",
                     LEFT, y, t->step * scale, ROW);
    for (int k = 0; k < s->per_stage; k++) {
        const size_t i = (size_t)stage * (size_t)s->per_stage + (size_t)k;
        const double x = LEFT + t->begin[i] * scale, width = (t->end[i] - t->begin[i]) * scale;
        const colour *c = &colours[a[k].work];
        tg_strbuf_printf(out,
                         "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
                         "fill-opacity=\"%.2f\" stroke=\"#ffffff\" stroke-width=\"0.5\"/>\n",
                         x, y, width, ROW, c->fill, opacity(s, a[k].chunk));
        snprintf(text, sizeof text, "%d", a[k].micro_batch + 1);
        if (width > 12)
            label(out, x + width / 2, y + ROW / 2 + 4, "middle", 11, a[k].chunk > 0 ? "#000000" : c->text,
                  text);
    }
}

teng_status tg_pipe_svg(const tg_pipe_schedule *s, const tg_pipe_times *t, bool seconds, tg_strbuf *out)
{
    /* About 26 pixels for a forward pass of average length, within what a screen shows. */
    double inner = 26.0 * s->per_stage * (s->kind == TG_PIPE_ZERO_BUBBLE ? 1.0 : 1.5);
    inner = inner < 600 ? 600 : inner > 2400 ? 2400 : inner;
    const double scale = t->step > 0 ? inner / t->step : 1;
    const double width = LEFT + inner + RIGHT, height = TOP + PITCH * s->stages + 56;
    char title[200];
    snprintf(title, sizeof title,
             "Pipeline %s: %d stages, %d micro-batches, %d chunk%s a stage, bubble %.1f %%",
             tg_pipe_kind_name(s->kind), s->stages, s->micro_batches, s->chunks, s->chunks > 1 ? "s" : "",
             100 * t->bubble);
    tg_strbuf_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                     "height=\"%.0f\" " FONT ">\n<title>%s</title>\n"
                     "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                     width, height, width, height, title);
    label(out, LEFT, 30, "start", 15, "#000000", title);
    legend(s, 50, out);
    for (int stage = 0; stage < s->stages; stage++)
        stage_row(s, t, stage, scale, out);
    const double y = TOP + PITCH * s->stages;
    tg_strbuf_printf(out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#333333\"/>\n", LEFT, y, LEFT + inner);
    for (int i = 0; i <= 8; i++) {
        const double x = LEFT + inner * i / 8, v = t->step * i / 8;
        char text[48];
        snprintf(text, sizeof text, seconds ? "%.3g ms" : "%.3g", seconds ? v * 1e3 : v);
        tg_strbuf_printf(out, "<path d=\"M%.1f %.1fv5\" stroke=\"#333333\"/>\n", x, y);
        label(out, x, y + 20, i == 8 ? "end" : "middle", 12, "#333333", text);
    }
    label(out, LEFT + inner / 2, y + 42, "middle", 12, "#333333",
          seconds ? "forecast time of one step" : "time of one step, in units of the given costs");
    tg_strbuf_puts(out, "</svg>\n");
    return out->failed ? tg_fail(TENG_MEMORY, "out of memory for the picture") : TENG_OK;
}
