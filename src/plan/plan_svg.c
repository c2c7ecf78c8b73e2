/*
 * The memory of a step as a picture: stacked by kind over the forecast time of its steps, the phases named
 * below, the peak marked. Opaque white, colours of Okabe and Ito, fixed digits: the same plan gives the same
 * bytes. No scripts, no fonts but the viewer's own.
 */
#include "base/fail.h"
#include "plan/plan_kinds.h"

#include <stdio.h>

#define WIDTH 960.0
#define HEIGHT 480.0
#define LEFT 78.0
#define RIGHT 250.0
#define TOP 66.0
#define BOTTOM 56.0
#define FONT "font-family=\"Helvetica, Arial, sans-serif\""

static const char *const colours[TG_MEMORY_KINDS] = {"#555555", "#999999", "#d55e00", "#cc79a7", "#0072b2",
                                                     "#56b4e9", "#e69f00", "#f0e442", "#009e73", "#bbbbbb"};

typedef struct picture {
    const tg_plan *plan;
    tg_memory_timeline line;
    double *x;    /* [n + 1] where each step begins, in pixels */
    double y_max; /* bytes at the top */
    double unit;  /* bytes of one on the axis */
    const char *unit_name;
    bool timed;     /* x is forecast time */
    double seconds; /* all of it */
    tg_strbuf *out;
} picture;

static double y_of(const picture *p, double bytes)
{
    return HEIGHT - BOTTOM - bytes / p->y_max * (HEIGHT - TOP - BOTTOM);
}

static void escaped(tg_strbuf *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            tg_strbuf_puts(out, "&lt;");
            break;
        case '>':
            tg_strbuf_puts(out, "&gt;");
            break;
        case '&':
            tg_strbuf_puts(out, "&amp;");
            break;
        default:
            tg_strbuf_putc(out, *text);
        }
}

static void label(const picture *p, double x, double y, const char *anchor, int size, const char *colour,
                  const char *text)
{
    tg_strbuf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">",
                     x, y, anchor, size, colour);
    escaped(p->out, text);
    tg_strbuf_puts(p->out, "</text>\n");
}

static size_t total_at(const picture *p, size_t k)
{
    size_t sum = 0;
    for (int i = 0; i < TG_MEMORY_KINDS; i++)
        sum += p->line.at[k].bytes[i];
    return sum;
}

static teng_status scale(picture *p)
{
    const tg_plan *plan = p->plan;
    const size_t n = p->line.n;
    p->x = tg_calloc(n + 1, sizeof *p->x);
    if (!p->x) return TENG_MEMORY;
    p->timed = plan->options.flops_per_s > 0 && plan->options.bytes_per_s > 0;
    for (size_t k = 0; k < n; k++)
        p->x[k + 1] = p->x[k] + (p->timed ? tg_plan_step_forecast(plan, k) : 1.0);
    const double end = p->x[n] > 0 ? p->x[n] : 1;
    p->seconds = p->x[n];
    for (size_t k = 0; k <= n; k++)
        p->x[k] = LEFT + p->x[k] / end * (WIDTH - LEFT - RIGHT);
    double most = n ? (double)total_at(p, (size_t)p->line.peak) : 0;
    if ((double)plan->options.budget > most && (double)plan->options.budget < 1.3 * most)
        most = (double)plan->options.budget;
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (p->unit = 1; most >= 2 * 1024 * p->unit && u < 4; u++)
        p->unit *= 1024;
    p->unit_name = names[u];
    p->y_max = most > 0 ? most * 1.08 : 1;
    return TENG_OK;
}

static void axes(const picture *p)
{
    static const double nice[] = {1, 2, 2.5, 5, 10};
    double tick = 1;
    char text[48];
    for (int i = 0; p->y_max / p->unit / tick > 7; i++)
        tick = (i >= 5 ? 10 : 1) * nice[i % 5] * (i >= 10 ? 100 : 1);
    for (double v = 0; v * p->unit <= p->y_max; v += tick) {
        const double y = y_of(p, v * p->unit);
        tg_strbuf_printf(p->out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#dddddd\"/>\n", LEFT, y,
                         WIDTH - RIGHT);
        snprintf(text, sizeof text, "%g %s", v, p->unit_name);
        label(p, LEFT - 8, y + 4, "end", 12, "#333333", text);
    }
    for (int phase = 0; phase < TG_PHASE_COUNT; phase++) {
        const size_t a = p->plan->phase_begin[phase], b = p->plan->phase_begin[phase + 1];
        if (a == b) continue;
        tg_strbuf_printf(p->out,
                         "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#888888\" stroke-dasharray=\"3 3\"/>\n",
                         p->x[b], TOP, HEIGHT - BOTTOM + 6);
        if (p->x[b] - p->x[a] > 46)
            label(p, (p->x[a] + p->x[b]) / 2, HEIGHT - BOTTOM + 18, "middle", 12, "#333333",
                  tg_phase_name((tg_phase)phase));
    }
    char time[32];
    snprintf(text, sizeof text, "one micro-batch, %s%s", p->timed ? "forecast time: " : "in program order",
             p->timed ? tg_format_seconds(time, p->seconds) : "");
    label(p, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "middle", 12, "#333333", text);
}

/* One kind's band between the sum of the kinds below it and its own top. */
static void band(const picture *p, int kind, const size_t *below)
{
    const size_t n = p->line.n;
    tg_strbuf_printf(p->out, "<path fill=\"%s\" d=\"M%.2f %.2f", colours[kind], p->x[0],
                     y_of(p, (double)below[0]));
    for (size_t k = 0; k < n; k++) {
        const double y = y_of(p, (double)(below[k] + p->line.at[k].bytes[kind]));
        tg_strbuf_printf(p->out, "L%.2f %.2fH%.2f", p->x[k], y, p->x[k + 1]);
    }
    for (size_t k = n; k-- > 0;)
        tg_strbuf_printf(p->out, "L%.2f %.2fH%.2f", p->x[k + 1], y_of(p, (double)below[k]), p->x[k]);
    tg_strbuf_puts(p->out, "Z\"/>\n");
}

static teng_status bands(const picture *p)
{
    size_t *below = tg_calloc(p->line.n + 1, sizeof *below);
    if (!below) return TENG_MEMORY;
    double y = TOP + 10;
    for (int kind = 0; kind < TG_MEMORY_KINDS; kind++) {
        bool any = false;
        for (size_t k = 0; k < p->line.n && !any; k++)
            any = p->line.at[k].bytes[kind] > 0;
        if (any) band(p, kind, below);
        for (size_t k = 0; k < p->line.n; k++)
            below[k] += p->line.at[k].bytes[kind];
    }
    label(p, WIDTH - RIGHT + 20, y, "start", 12, "#333333", "at the peak");
    for (int kind = TG_MEMORY_KINDS; kind-- > 0;) { /* as they are stacked, from the top */
        char text[80], bytes[32];
        bool any = false;
        for (size_t k = 0; k < p->line.n && !any; k++)
            any = p->line.at[k].bytes[kind] > 0;
        if (!any) continue;
        y += 22;
        tg_strbuf_printf(p->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
                         WIDTH - RIGHT + 20, y - 10, colours[kind]);
        snprintf(text, sizeof text, "%s", tg_memory_kind_name((tg_memory_kind)kind));
        label(p, WIDTH - RIGHT + 38, y, "start", 12, "#111111", text);
        label(p, WIDTH - 8, y, "end", 12, "#111111",
              tg_format_bytes(bytes, (double)p->line.at[p->line.peak].bytes[kind]));
    }
    tg_free(below);
    return TENG_OK;
}

static void mark_peak(const picture *p)
{
    const tg_node *node = p->plan->steps.data[p->line.peak].node;
    const double x = (p->x[p->line.peak] + p->x[p->line.peak + 1]) / 2,
                 y = y_of(p, (double)total_at(p, (size_t)p->line.peak));
    char text[400], bytes[32];
    tg_strbuf_printf(
        p->out,
        "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#111111\"/>\n<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" "
        "fill=\"#111111\"/>\n",
        x, TOP - 8, y, x, y);
    snprintf(text, sizeof text, "peak %s, step %d: %s%s%s%s",
             tg_format_bytes(bytes, (double)total_at(p, (size_t)p->line.peak)), p->line.peak, node->op->name,
             node->recomputed ? " (recomputed)" : "", *node->scope ? " in " : "", node->scope);
    const bool right = x > (LEFT + WIDTH - RIGHT) / 2;
    label(p,
          right          ? x + 6
          : x - 6 < LEFT ? LEFT
                         : x + 6,
          TOP - 14, right ? "middle" : "start", 12, "#111111", text);
}

static void mark_budget(const picture *p)
{
    const double budget = (double)p->plan->options.budget;
    if (budget <= 0 || budget > p->y_max) return;
    const double y = y_of(p, budget);
    char text[64], bytes[32];
    tg_strbuf_printf(p->out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#b00000\" stroke-dasharray=\"6 4\"/>\n",
                     LEFT, y, WIDTH - RIGHT);
    snprintf(text, sizeof text, "budget %s", tg_format_bytes(bytes, budget));
    label(p, WIDTH - RIGHT + 6, y + 4, "start", 12, "#b00000", text);
}

teng_status tg_plan_memory_svg(const tg_plan *plan, const char *title, tg_strbuf *out)
{
    picture p = {.plan = plan, .out = out};
    if (plan->steps.len == 0) return tg_fail(TENG_INVALID, "a plan without steps has no picture");
    TG_TRY(tg_memory_timeline_make(plan, &p.line));
    teng_status status = scale(&p);
    if (status == TENG_OK) {
        tg_strbuf_printf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                         "height=\"%.0f\" " FONT
                         ">\n<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n",
                         WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
        label(&p, LEFT, 26, "start", 16, "#111111", title);
        axes(&p);
        status = bands(&p);
        mark_budget(&p);
        mark_peak(&p);
        tg_strbuf_puts(out, "</svg>\n");
    }
    tg_free(p.x);
    tg_memory_timeline_free(&p.line);
    if (status == TENG_OK && out->failed) status = tg_fail(TENG_MEMORY, "out of memory for the picture");
    return status;
}
