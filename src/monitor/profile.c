/*
 * Collecting a profile, and its files. Collecting appends to arrays and does nothing else, so that what is
 * measured is disturbed little. Times are kept in whole nanoseconds: events that touch in the clock touch in
 * the trace too.
 */
#include "monitor/profile.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/strmap.h"

#include <math.h>
#include <string.h>

static const char *const part_names[] = {"forward",    "backward",   "update", "data",
                                         "evaluation", "checkpoint", "books"};

const char *tg_profile_part_name(tg_profile_part part)
{
    return part_names[part];
}

tg_profile *tg_profile_create(const tg_profile_machine *machine, json_t *settings)
{
    tg_profile *p = tg_calloc(1, sizeof *p);
    if (!p) return NULL;
    p->arena = tg_arena_create();
    p->index = tg_strmap_create();
    p->machine = *machine;
    p->machine.device = p->arena ? tg_arena_strdup(p->arena, machine->device) : NULL;
    p->settings = settings ? json_deep_copy(settings) : json_object();
    if (!p->index || !p->machine.device || !p->settings) tg_profile_destroy(&p);
    return p;
}

void tg_profile_destroy(tg_profile **profile)
{
    tg_profile *p = *profile;
    if (!p) return;
    tg_vec_free(&p->rows);
    tg_vec_free(&p->events);
    tg_vec_free(&p->beside);
    tg_vec_free(&p->communication);
    tg_vec_free(&p->steps);
    tg_strmap_destroy(&p->index);
    tg_arena_destroy(&p->arena);
    json_decref(p->settings);
    json_decref(p->sent);
    tg_free(p);
    *profile = NULL;
}

/* ---- collecting ---- */
int tg_profile_find(const tg_profile *p, const void *key, size_t len)
{
    int64_t row;
    return tg_strmap_get(p->index, key, len, &row) ? (int)row : -1;
}

int tg_profile_add(tg_profile *p, const void *key, size_t len, const tg_profile_row *row)
{
    tg_profile_row own = *row;
    const char **texts[] = {&own.op, &own.layer, &own.kernel, &own.dtype, &own.shape};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!(*texts[i] = tg_arena_strdup(p->arena, *texts[i]))) p->failed = true;
    own.calls = 0;
    own.seconds = 0;
    if (p->failed || !tg_vec_push(&p->rows, own) ||
        !tg_strmap_set(p->index, key, len, (int64_t)p->rows.len - 1, NULL)) {
        p->failed = true;
        return -1;
    }
    return (int)p->rows.len - 1;
}

static int64_t nanoseconds(const tg_profile *p, double clock)
{
    return (int64_t)llround((clock - p->origin) * 1e9);
}

void tg_profile_operator(tg_profile *p, int row, double begin, double end)
{
    if (row < 0) return;
    const tg_profile_event e = {nanoseconds(p, begin), nanoseconds(p, end), p->rows.data[row].part, row};
    if (!tg_vec_push(&p->events, e)) p->failed = true;
}

void tg_profile_collective(tg_profile *p, int row, double begin, double end, double beside_begin,
                           double beside_end)
{
    if (row < 0) return;
    tg_profile_operator(p, row, begin, end);
    p->exposed += end - begin;
    p->communicated += beside_end > 0 ? beside_end - beside_begin : end - begin;
    const tg_profile_event e = {nanoseconds(p, beside_begin), nanoseconds(p, beside_end),
                                p->rows.data[row].part, row};
    if (beside_end > 0 && !tg_vec_push(&p->communication, e)) p->failed = true;
}

void tg_profile_communication(tg_profile *p, double busy, double exposed)
{
    p->told_busy += busy;
    p->told_exposed += exposed;
}

void tg_profile_sent(tg_profile *p, const char *axes, double bytes)
{
    if (!p->sent) p->sent = json_object();
    const double before = json_real_value(json_object_get(p->sent, axes));
    if (!p->sent || json_object_set_new(p->sent, axes, json_real(before + bytes))) p->failed = true;
}

/* What operators told lies within what ranks told. */
static void sum_communication(tg_profile *p)
{
    if (p->told_exposed > p->exposed) {
        p->messages = p->told_exposed - p->exposed;
        p->exposed = p->told_exposed;
    }
    if (p->told_busy > p->communicated) p->communicated = p->told_busy;
}

void tg_profile_host(tg_profile *p, tg_profile_part part, double begin, double end)
{
    const tg_profile_event e = {nanoseconds(p, begin), nanoseconds(p, end), part, -1};
    if (!tg_vec_push(&p->events, e)) p->failed = true;
}

void tg_profile_beside(tg_profile *p, tg_profile_part part, double begin, double end)
{
    const tg_profile_event e = {nanoseconds(p, begin), nanoseconds(p, end), part, -1};
    if (!tg_vec_push(&p->beside, e)) p->failed = true;
}

void tg_profile_begin_step(tg_profile *p, int64_t step, double begin)
{
    if (p->steps.len == 0) p->origin = begin;
    const tg_profile_step s = {.step = step, .begin = nanoseconds(p, begin), .cpu_seconds = -1};
    if (!tg_vec_push(&p->steps, s)) p->failed = true;
    p->waiting = p->events.len;
    tg_profile_host(p, TG_PROFILE_DATA, begin, begin);
}

void tg_profile_waited(tg_profile *p, double seconds)
{
    if (p->waiting >= p->events.len) return;
    tg_profile_event *e = &p->events.data[p->waiting];
    e->end = e->begin + (int64_t)llround(seconds * 1e9);
}

void tg_profile_end_step(tg_profile *p, double end, double cpu_seconds, uint64_t resident)
{
    if (!p->steps.len) return;
    tg_profile_step *s = &p->steps.data[p->steps.len - 1];
    s->end = nanoseconds(p, end);
    s->cpu_seconds = cpu_seconds;
    s->resident = resident;
}

/* ---- sums ---- */
static double seconds_of(int64_t nanos)
{
    return 1e-9 * (double)nanos;
}

teng_status tg_profile_sum(tg_profile *p)
{
    if (p->failed) return tg_fail(TENG_MEMORY, "out of memory while a profile was collected");
    if (!p->steps.len) return tg_fail(TENG_STATE, "no step was profiled");
    int64_t wall = 0, part[TG_PROFILE_PARTS] = {0}, covered = 0, aside = 0;
    p->cpu_seconds = 0;
    for (size_t i = 0; i < p->steps.len; i++) {
        const tg_profile_step *s = &p->steps.data[i];
        wall += s->end - s->begin;
        if (s->cpu_seconds < 0) p->cpu_seconds = -1;
        if (p->cpu_seconds >= 0) p->cpu_seconds += s->cpu_seconds;
    }
    for (size_t i = 0; i < p->rows.len; i++)
        p->rows.data[i].calls = 0, p->rows.data[i].seconds = 0;
    for (size_t i = 0; i < p->events.len; i++) {
        const tg_profile_event *e = &p->events.data[i];
        part[e->part] += e->end - e->begin;
        covered += e->end - e->begin;
        if (e->row < 0) continue;
        p->rows.data[e->row].calls++;
        p->rows.data[e->row].seconds += seconds_of(e->end - e->begin);
    }
    for (size_t i = 0; i < p->beside.len; i++)
        aside += p->beside.data[i].end - p->beside.data[i].begin;
    for (int i = 0; i < TG_PROFILE_PARTS; i++)
        p->part[i] = seconds_of(part[i]);
    p->n_steps = (int64_t)p->steps.len;
    p->first_step = p->steps.data[0].step;
    p->last_step = p->steps.data[p->steps.len - 1].step;
    p->wall = seconds_of(wall);
    p->gaps = seconds_of(wall - covered);
    sum_communication(p);
    if (p->messages > p->gaps) p->messages = p->gaps;
    p->gaps -= p->messages;
    p->aside = seconds_of(aside);
    return TENG_OK;
}

/* ---- trace.json ---- */
enum { TRAINS = 1, KEEPS_BOOKS, COMMUNICATES, THREADS }; /* thread ids of the trace */

/* {"ph":"X",…,"cat":…,"name":… without the closing brace. Trace times are microseconds. */
static void begin_event(tg_strbuf *out, int thread, int64_t begin, int64_t end, const char *category)
{
    const int64_t length = end - begin;
    tg_strbuf_printf(out,
                     ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%lld.%03lld,\"dur\":%lld.%03lld,\"cat\":"
                     "\"%s\"",
                     thread, (long long)(begin / 1000), (long long)(begin % 1000), (long long)(length / 1000),
                     (long long)(length % 1000), category);
}

static void put_text(tg_strbuf *out, const char *key, const char *value)
{
    json_t *string = json_string(value);
    char *text = string ? tg_json_text(string, 0) : NULL;
    if (text)
        tg_strbuf_printf(out, ",\"%s\":%s", key, text);
    else
        out->failed = true;
    tg_free(text);
    json_decref(string);
}

static void put_operator(tg_strbuf *out, int thread, const tg_profile *p, const tg_profile_event *e)
{
    const tg_profile_row *r = &p->rows.data[e->row];
    const double seconds = seconds_of(e->end - e->begin);
    bool memory;
    const double least = tg_profile_attainable(p, r, &memory);
    begin_event(out, thread, e->begin, e->end, part_names[r->part]);
    put_text(out, "name", r->op);
    tg_strbuf_puts(out, ",\"args\":{\"recomputed\":");
    tg_strbuf_puts(out, r->recomputed ? "true" : "false");
    put_text(out, "layer", r->layer);
    put_text(out, "kernel", r->kernel);
    put_text(out, "shape", r->shape);
    tg_strbuf_printf(out, ",\"flops\":%.0f,\"bytes\":%.0f", r->flops, r->bytes);
    if (seconds > 0)
        tg_strbuf_printf(out, ",\"gflop_per_s\":%.3f,\"gb_per_s\":%.3f,\"peak_share\":%.4f",
                         1e-9 * r->flops / seconds, 1e-9 * r->bytes / seconds, least / seconds);
    tg_strbuf_printf(out, ",\"bound\":\"%s\"}}", memory ? "memory" : "compute");
}

static void put_host(tg_strbuf *out, int thread, const tg_profile_event *e)
{
    begin_event(out, thread, e->begin, e->end, "host");
    put_text(out, "name", part_names[e->part]);
    tg_strbuf_puts(out, "}");
}

static void put_step(tg_strbuf *out, const tg_profile *p, const tg_profile_step *s)
{
    const double seconds = seconds_of(s->end - s->begin);
    begin_event(out, TRAINS, s->begin, s->end, "step");
    tg_strbuf_printf(out, ",\"name\":\"step %lld\",\"args\":{\"threads\":%d", (long long)s->step,
                     p->machine.threads);
    if (s->cpu_seconds >= 0 && seconds > 0)
        tg_strbuf_printf(out, ",\"threads_busy\":%.3f", s->cpu_seconds / seconds);
    tg_strbuf_puts(out, "}}");
    if (s->resident)
        tg_strbuf_printf(
            out,
            ",\n{\"ph\":\"C\",\"pid\":1,\"ts\":%lld.%03lld,\"name\":\"resident memory\",\"args\":{\"bytes\":"
            "%llu}}",
            (long long)(s->end / 1000), (long long)(s->end % 1000), (unsigned long long)s->resident);
}

/* Operators one after the other of one phase, and of one micro-batch, are one event around them. */
static void put_phase(tg_strbuf *out, const tg_profile *p, size_t first, int64_t step_end)
{
    const tg_profile_event *e = &p->events.data[first];
    size_t last = first;
    while (last + 1 < p->events.len && p->events.data[last + 1].row >= 0 &&
           p->events.data[last + 1].part == e->part && p->events.data[last + 1].begin < step_end)
        last++;
    begin_event(out, TRAINS, e->begin, p->events.data[last].end, "phase");
    put_text(out, "name", part_names[e->part]);
    tg_strbuf_puts(out, "}");
}

static bool begins_phase(const tg_profile *p, size_t i, size_t first_of_step)
{
    const tg_profile_event *e = &p->events.data[i];
    return e->row >= 0 && (i == first_of_step || e[-1].row < 0 || e[-1].part != e->part);
}

static void put_names(tg_strbuf *out, const tg_profile *p)
{
    static const char *const thread[] = {
        [TRAINS] = "training", [KEEPS_BOOKS] = "books", [COMMUNICATES] = "communication"};
    const bool here[] = {
        [TRAINS] = true, [KEEPS_BOOKS] = p->beside.len > 0, [COMMUNICATES] = p->communication.len > 0};
    tg_strbuf_puts(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"teng\"}}");
    for (int t = TRAINS; t < THREADS; t++)
        if (here[t])
            tg_strbuf_printf(out,
                             ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
                             "\"name\":\"%s\"}}",
                             t, thread[t]);
}

/* Outer events come before inner ones, as viewers like it. */
static void put_events(tg_strbuf *out, const tg_profile *p)
{
    size_t i = 0;
    put_names(out, p);
    for (size_t s = 0; s < p->steps.len; s++) {
        const tg_profile_step *step = &p->steps.data[s];
        const size_t first = i;
        put_step(out, p, step);
        for (; i < p->events.len && p->events.data[i].begin < step->end; i++) {
            if (begins_phase(p, i, first)) put_phase(out, p, i, step->end);
            if (p->events.data[i].row >= 0)
                put_operator(out, TRAINS, p, &p->events.data[i]);
            else
                put_host(out, TRAINS, &p->events.data[i]);
        }
    }
    for (i = 0; i < p->beside.len; i++)
        put_host(out, KEEPS_BOOKS, &p->beside.data[i]);
    for (i = 0; i < p->communication.len; i++)
        put_operator(out, COMMUNICATES, p, &p->communication.data[i]);
    tg_strbuf_puts(out, "\n]}\n");
}

static teng_status write_trace(const tg_profile *p, const char *path)
{
    tg_strbuf text = {0};
    put_events(&text, p);
    const teng_status status = text.failed ? tg_fail(TENG_MEMORY, "%s: out of memory", path)
                                           : tg_file_write(path, tg_strbuf_str(&text), text.len);
    tg_strbuf_free(&text);
    return status;
}

/* ---- profile.json ---- */
static json_t *rows_json(const tg_profile *p)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < p->rows.len; i++) {
        const tg_profile_row *r = &p->rows.data[i];
        json_t *row =
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:f, s:f, s:I, s:f}", "phase", part_names[r->part],
                      "operator", r->op, "layer", r->layer, "kernel", r->kernel, "dtype", r->dtype, "shape",
                      r->shape, "recomputed", r->recomputed, "flops", r->flops, "bytes", r->bytes, "calls",
                      (json_int_t)r->calls, "seconds", r->seconds);
        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *parts_json(const tg_profile *p)
{
    json_t *parts = json_object();
    for (int i = 0; i < TG_PROFILE_PARTS; i++)
        json_object_set_new(parts, part_names[i], json_real(p->part[i]));
    json_object_set_new(parts, "messages", json_real(p->messages));
    json_object_set_new(parts, "gaps", json_real(p->gaps));
    return parts;
}

static teng_status write_sums(const tg_profile *p, const char *path)
{
    const tg_profile_machine *m = &p->machine;
    json_t *root = json_pack(
        "{s:i, s:[I,I], s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:{s:s, s:i, s:f, s:f, s:f}, s:O, s:o}", "version",
        1, "steps", (json_int_t)p->first_step, (json_int_t)p->last_step, "steps_measured",
        (json_int_t)p->n_steps, "seconds", p->wall, "cpu_seconds", p->cpu_seconds, "beside_seconds", p->aside,
        "communication_seconds", p->communicated, "communication_exposed_seconds", p->exposed, "parts",
        parts_json(p), "machine", "device", m->device, "threads", m->threads, "f32_flops_per_s", m->f32_flops,
        "bf16_flops_per_s", m->bf16_flops, "bytes_per_s", m->bytes_per_s, "settings", p->settings,
        "operators", rows_json(p));
    if (root && p->sent) json_object_set(root, "sent_bytes", p->sent);
    const teng_status status =
        root ? tg_json_save_file(path, root) : tg_fail(TENG_MEMORY, "%s: out of memory", path);
    json_decref(root);
    return status;
}

teng_status tg_profile_write(const tg_profile *p, const char *dir)
{
    char *trace = tg_path_join(dir, "trace.json"), *sums = tg_path_join(dir, "profile.json");
    teng_status status = trace && sums ? write_trace(p, trace) : TENG_MEMORY;
    if (status == TENG_OK) status = write_sums(p, sums);
    tg_free(trace);
    tg_free(sums);
    return status;
}

/* ---- reading back ---- */
static teng_status read_row(tg_profile *p, const json_t *json, const char *where)
{
    tg_profile_row r = {0};
    const char *phase = "";
    TG_TRY(tg_json_get_string(json, where, "phase", true, &phase));
    while (r.part < TG_PROFILE_PARTS && strcmp(phase, part_names[r.part]) != 0)
        r.part++;
    if (r.part > TG_PROFILE_UPDATE)
        return tg_fail(TENG_FORMAT, "%s: phase \"%s\" is none of forward, backward, update", where, phase);
    TG_TRY(tg_json_get_string(json, where, "operator", true, &r.op));
    TG_TRY(tg_json_get_string(json, where, "layer", true, &r.layer));
    TG_TRY(tg_json_get_string(json, where, "kernel", true, &r.kernel));
    TG_TRY(tg_json_get_string(json, where, "dtype", true, &r.dtype));
    TG_TRY(tg_json_get_string(json, where, "shape", true, &r.shape));
    TG_TRY(tg_json_get_bool(json, where, "recomputed", true, &r.recomputed));
    TG_TRY(tg_json_get_real(json, where, "flops", true, &r.flops));
    TG_TRY(tg_json_get_real(json, where, "bytes", true, &r.bytes));
    TG_TRY(tg_json_get_int(json, where, "calls", true, &r.calls));
    TG_TRY(tg_json_get_real(json, where, "seconds", true, &r.seconds));
    const int64_t calls = r.calls;
    const double seconds = r.seconds;
    const size_t key = p->rows.len;
    const int row = tg_profile_add(p, &key, sizeof key, &r);
    if (row < 0) return TENG_MEMORY;
    p->rows.data[row].calls = calls;
    p->rows.data[row].seconds = seconds;
    return TENG_OK;
}

static teng_status read_sums(const json_t *root, const char *path, tg_profile *p)
{
    const json_t *parts = json_object_get(root, "parts"), *steps = json_object_get(root, "steps"),
                 *rows = json_object_get(root, "operators");
    TG_TRY(tg_json_get_int(root, path, "steps_measured", true, &p->n_steps));
    TG_TRY(tg_json_get_real(root, path, "seconds", true, &p->wall));
    TG_TRY(tg_json_get_real(root, path, "cpu_seconds", true, &p->cpu_seconds));
    TG_TRY(tg_json_get_real(root, path, "beside_seconds", true, &p->aside));
    TG_TRY(tg_json_get_real(root, path, "communication_seconds", false, &p->communicated));
    TG_TRY(tg_json_get_real(root, path, "communication_exposed_seconds", false, &p->exposed));
    for (int i = 0; i < TG_PROFILE_PARTS; i++)
        TG_TRY(tg_json_get_real(parts, path, part_names[i], true, &p->part[i]));
    TG_TRY(tg_json_get_real(parts, path, "gaps", true, &p->gaps));
    TG_TRY(tg_json_get_real(parts, path, "messages", false, &p->messages));
    p->sent = json_incref(json_object_get(root, "sent_bytes"));
    p->first_step = json_integer_value(json_array_get(steps, 0));
    p->last_step = json_integer_value(json_array_get(steps, 1));
    if (p->n_steps < 1 || !(p->wall > 0)) return tg_fail(TENG_FORMAT, "%s: no step was measured", path);
    for (size_t i = 0; i < json_array_size(rows); i++)
        TG_TRY(read_row(p, json_array_get(rows, i), path));
    return TENG_OK;
}

static teng_status read_all(const json_t *root, const char *path, tg_profile **out)
{
    int64_t version = 0, threads = 0;
    const json_t *machine = json_object_get(root, "machine");
    tg_profile_machine m = {0};
    TG_TRY(tg_json_get_int(root, path, "version", true, &version));
    if (version != 1)
        return tg_fail(TENG_UNSUPPORTED, "%s: version %lld of the format; this teng reads 1", path,
                       (long long)version);
    TG_TRY(tg_json_get_string(machine, path, "device", true, &m.device));
    TG_TRY(tg_json_get_int(machine, path, "threads", true, &threads));
    TG_TRY(tg_json_get_real(machine, path, "f32_flops_per_s", true, &m.f32_flops));
    TG_TRY(tg_json_get_real(machine, path, "bf16_flops_per_s", true, &m.bf16_flops));
    TG_TRY(tg_json_get_real(machine, path, "bytes_per_s", true, &m.bytes_per_s));
    m.threads = (int)threads;
    *out = tg_profile_create(&m, json_object_get(root, "settings"));
    return *out ? read_sums(root, path, *out) : TENG_MEMORY;
}

teng_status tg_profile_read(const char *path, tg_profile **out)
{
    json_t *root = NULL;
    *out = NULL;
    TG_TRY(tg_json_load_file(path, &root));
    const teng_status status = read_all(root, path, out);
    json_decref(root);
    if (status != TENG_OK) tg_profile_destroy(out);
    return status;
}
