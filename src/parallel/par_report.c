/* What was redistributed, as text and JSON, and how many bytes along which axes. */
#include "parallel/parallel_impl.h"

#include "tensor/desc.h"

#include <stdio.h>
#include <string.h>

void tg_placement_print(const tg_mesh *mesh, const tg_placement *placement, tg_strbuf *out)
{
    bool any = false;
    for (int a = 0; a < TG_AXES; a++) {
        const teng_place on = placement->on[a];
        if (mesh->size[a] == 1 || on == TENG_REPLICATED) continue;
        tg_strbuf_printf(out, "%s%s:", any ? " " : "", tg_axis_name((tg_axis)a));
        if (on == TENG_PARTIAL)
            tg_strbuf_putc(out, 'P');
        else if (on == PAR_THERE)
            tg_strbuf_puts(out, "with its expert");
        else
            tg_strbuf_printf(out, "S%d", on);
        if (a == TG_AXIS_TENSOR && on >= 0 && placement->groups > 1)
            tg_strbuf_printf(out, "/%d", placement->groups);
        any = true;
    }
    if (placement->shard) {
        char axes[TG_AXES_TEXT];
        tg_strbuf_printf(out, "%s%s:S%d", any ? " " : "", tg_axes_text(axes, sizeof axes, placement->shard),
                         placement->shard_dim);
        any = true;
    }
    if (!any) tg_strbuf_puts(out, "replicated");
}

static double times(const tg_parallel *p, const tg_parallel_move *m)
{
    return m->phase == TG_UPDATE ? 1 : (double)p->options.micro_batches;
}

double tg_parallel_bytes(const tg_parallel *parallel, tg_axis_set axes)
{
    double sum = 0;
    for (size_t i = 0; i < parallel->moves.len; i++) {
        const tg_parallel_move *m = &parallel->moves.data[i];
        if (!axes || m->axes == axes) sum += m->bytes * times(parallel, m);
    }
    return sum;
}

/* The text with every layer's number as *, so that repetitions are one line. */
static void without_numbers(const char *s, char *out, size_t size)
{
    size_t n = 0;
    for (const char *p = s; *p && n + 1 < size;) {
        const bool begins = p == s || p[-1] == '.';
        const size_t digits = strspn(p, "0123456789");
        if (begins && digits && strchr(". ", p[digits])) { /* the end too */
            out[n++] = '*';
            p += digits;
        } else {
            out[n++] = *p++;
        }
    }
    out[n] = '\0';
}

typedef struct line {
    tg_strbuf text;
    int count;
    double bytes;
} line;

static void add_line(const tg_parallel_move *m, tg_strbuf *out)
{
    char text[TG_DESC_TEXT], where[512], name[256], axes[TG_AXES_TEXT];
    without_numbers(m->where, where, sizeof where);
    tg_strbuf_printf(out, "%-8s %-14s %s %s", tg_phase_name(m->phase), m->op,
                     tg_axes_text(axes, sizeof axes, m->axes), tg_desc_text(text, &m->desc));
    if (m->value) {
        without_numbers(m->value, name, sizeof name);
        tg_strbuf_printf(out, " %s", name);
    }
    tg_strbuf_printf(out, "  for %s", where);
}

static void print_moves(const tg_parallel *p, tg_strbuf *out)
{
    tg_strmap *seen = tg_strmap_create();
    TG_VEC(line) lines = {0};
    for (size_t i = 0; i < p->moves.len && seen; i++) {
        const tg_parallel_move *m = &p->moves.data[i];
        line fresh = {.count = 0};
        int64_t at = (int64_t)lines.len;
        add_line(m, &fresh.text);
        if (tg_strmap_get(seen, fresh.text.data, fresh.text.len, &at)) {
            tg_strbuf_free(&fresh.text);
        } else if (!tg_strmap_set(seen, fresh.text.data, fresh.text.len, at, NULL) ||
                   !tg_vec_push(&lines, fresh)) {
            tg_strbuf_free(&fresh.text);
            break;
        }
        lines.data[at].count++;
        lines.data[at].bytes += m->bytes;
    }
    for (size_t i = 0; i < lines.len; i++) {
        char bytes[32];
        tg_strbuf_printf(out, "%4d x %10s  %s\n", lines.data[i].count,
                         tg_format_bytes(bytes, lines.data[i].bytes / lines.data[i].count),
                         tg_strbuf_str(&lines.data[i].text));
        tg_strbuf_free(&lines.data[i].text);
    }
    tg_vec_free(&lines);
    tg_strmap_destroy(&seen);
}

void tg_parallel_print_place(const tg_parallel *parallel, tg_strbuf *out)
{
    const tg_mesh *mesh = &parallel->options.mesh;
    int coord[TG_AXES];
    bool any = false;
    tg_mesh_coords(mesh, parallel->options.rank, coord);
    tg_strbuf_printf(out, "%d of %d:", parallel->options.rank, mesh->ranks);
    for (int a = 0; a < TG_AXES; a++) {
        if (mesh->size[a] == 1) continue;
        tg_strbuf_printf(out, "%s %s %d of %d", any ? "," : "", tg_axis_name((tg_axis)a), coord[a],
                         mesh->size[a]);
        any = true;
    }
    tg_strbuf_puts(out, any ? "\n" : " alone\n");
}

void tg_parallel_print_bytes(const tg_parallel *parallel, const char *before, tg_strbuf *out)
{
    char text[32], name[TG_AXES_TEXT];
    for (tg_axis_set axes = 1; axes < 1u << TG_AXES; axes++) {
        const double bytes = tg_parallel_bytes(parallel, axes);
        if (bytes == 0) continue;
        tg_strbuf_printf(out, "%s%s along %s\n", before, tg_format_bytes(text, bytes),
                         tg_axes_text(name, sizeof name, axes));
    }
}

/* Parameters that are placed alike on one line, layers together. */
static void print_entries(const tg_parallel *p, tg_strbuf *out)
{
    tg_strmap *seen = tg_strmap_create();
    for (size_t i = 0; i < p->entries.len && seen; i++) {
        const tg_parallel_entry *e = &p->entries.data[i];
        char name[256], whole[TG_DESC_TEXT], part[TG_DESC_TEXT];
        bool existed = false;
        if (e->kind != TG_VALUE_PARAM) continue;
        const teng_desc local = tg_mesh_local(&p->options.mesh, p->options.rank, &e->whole, &e->placement);
        tg_strbuf text = {0};
        without_numbers(e->name, name, sizeof name);
        tg_strbuf_printf(&text, "   %s %s here %s  ", name, tg_desc_text(whole, &e->whole),
                         tg_desc_text(part, &local));
        tg_placement_print(&p->options.mesh, &e->placement, &text);
        if (text.data && tg_strmap_set(seen, text.data, text.len, 0, &existed) && !existed)
            tg_strbuf_printf(out, "%s\n", text.data);
        tg_strbuf_free(&text);
    }
    tg_strmap_destroy(&seen);
}

void tg_parallel_print(const tg_parallel *parallel, tg_strbuf *out)
{
    tg_strbuf_puts(out, "rank ");
    tg_parallel_print_place(parallel, out);
    tg_strbuf_puts(out,
                   "parameters (S: split along that dimension, /g: in each of g groups; else replicated):\n");
    print_entries(parallel, out);
    tg_strbuf_puts(out, "redistributions, and the bytes that this rank sends in each:\n");
    if (parallel->moves.len == 0) tg_strbuf_puts(out, "   none\n");
    print_moves(parallel, out);
    tg_strbuf_puts(out, "bytes sent in one optimizer step:\n");
    tg_parallel_print_bytes(parallel, "   ", out);
}

json_t *tg_parallel_json(const tg_parallel *parallel)
{
    const tg_mesh *mesh = &parallel->options.mesh;
    json_t *sizes = json_object(), *moves = json_array(), *entries = json_array();
    for (int a = 0; a < TG_AXES; a++)
        json_object_set_new(sizes, tg_axis_name((tg_axis)a), json_integer(mesh->size[a]));
    for (size_t i = 0; i < parallel->moves.len; i++) {
        const tg_parallel_move *m = &parallel->moves.data[i];
        char desc[TG_DESC_TEXT], axes[TG_AXES_TEXT];
        json_array_append_new(moves,
                              json_pack("{s:s, s:s, s:s, s:f, s:s, s:s?, s:s}", "op", m->op, "axes",
                                        tg_axes_text(axes, sizeof axes, m->axes), "phase",
                                        tg_phase_name(m->phase), "bytes", m->bytes, "whole",
                                        tg_desc_text(desc, &m->desc), "value", m->value, "for", m->where));
    }
    for (size_t i = 0; i < parallel->entries.len; i++) {
        const tg_parallel_entry *e = &parallel->entries.data[i];
        char desc[TG_DESC_TEXT];
        tg_strbuf at = {0};
        tg_placement_print(mesh, &e->placement, &at);
        json_array_append_new(entries,
                              json_pack("{s:s, s:s, s:s}", "name", e->name, "whole",
                                        tg_desc_text(desc, &e->whole), "placement", tg_strbuf_str(&at)));
        tg_strbuf_free(&at);
    }
    json_t *sent = json_object();
    for (tg_axis_set s = 1; s < 1u << TG_AXES; s++) {
        char axes[TG_AXES_TEXT];
        const double bytes = tg_parallel_bytes(parallel, s);
        if (bytes > 0) json_object_set_new(sent, tg_axes_text(axes, sizeof axes, s), json_real(bytes));
    }
    return json_pack("{s:i, s:o, s:o, s:o, s:f, s:o}", "rank", parallel->options.rank, "mesh", sizes,
                     "redistributions", moves, "entries", entries, "bytes", tg_parallel_bytes(parallel, 0),
                     "sent_bytes", sent);
}
