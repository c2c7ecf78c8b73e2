/*
 * Whether all ranks mean the same: before they begin (program, byte order, configuration, …) and, with
 * parallel.check, before each collective. Texts are compared, so that a message can show both sides. Not
 * here: whether replicas hold equal numbers (train).
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "comm/comm_impl.h"

#include <link.h>
#include <stdio.h>
#include <string.h>

/* ---- each collective ---- */
typedef struct record {
    char call[256], site[256];
} record;

teng_status tg_comm_compare(tg_group *g)
{
    tg_comm *c = g->comm;
    record mine = {{0}, {0}}, *all = tg_comm_scratch(c, sizeof *all * (size_t)g->n);
    int n = 0;
    if (!all) return TENG_MEMORY;
    snprintf(mine.call, sizeof mine.call, "%s", c->call);
    snprintf(mine.site, sizeof mine.site, "%s",
             tg_comm_site() ? tg_comm_site() : "the host's part of the step");
    for (int k = 1; k < g->n; k++) {
        const int to = (g->index + k) % g->n, from = (g->index - k + g->n) % g->n;
        c->transfers.data[n++] = (tg_transfer){g->ranks[to], TG_TAG_CHECK, true, &mine, sizeof mine};
        c->transfers.data[n++] = (tg_transfer){g->ranks[from], TG_TAG_CHECK, false, &all[from], sizeof mine};
    }
    TG_TRY(tg_comm_transfer(c, c->transfers.data, n));
    for (int i = 0; i < g->n; i++) {
        if (i == g->index || strncmp(all[i].call, mine.call, sizeof mine.call) == 0) continue;
        c->broken = true;
        return tg_fail(TENG_STATE,
                       "the ranks' collectives differ (parallel.check): rank %d calls %s at %s; rank %d "
                       "calls %.255s at %.255s",
                       c->rank, mine.call, mine.site, g->ranks[i], all[i].call, all[i].site);
    }
    return TENG_OK;
}

/* ---- before they begin ---- */
/* values[ranks], equal or not; where they differ: each value with its ranks, the first few of both. */
static teng_status want_equal(const tg_comm *c, const char *what, const char *const *values)
{
    char text[1400];
    size_t at = 0;
    bool equal = true;
    for (int r = 1; r < c->size && equal; r++)
        equal = strcmp(values[r], values[0]) == 0;
    if (equal) return TENG_OK;
    for (int r = 0, shown = 0; r < c->size && at < sizeof text - 1; r++) {
        bool seen = false;
        int ranks = 0;
        for (int k = 0; k < r && !seen; k++)
            seen = strcmp(values[k], values[r]) == 0;
        if (seen) continue;
        if (shown++ == 4) {
            at += (size_t)snprintf(text + at, sizeof text - at, "; …");
            break;
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.200s on rank", at ? "; " : "", values[r]);
        for (int k = r; k < c->size && at < sizeof text - 1; k++)
            if (strcmp(values[k], values[r]) == 0 && ranks++ < 8)
                at += (size_t)snprintf(text + at, sizeof text - at, "%s %d", ranks > 1 ? "," : "", k);
        if (ranks > 8 && at < sizeof text - 1)
            at += (size_t)snprintf(text + at, sizeof text - at, " and %d more", ranks - 8);
    }
    return tg_fail(TENG_INVALID, "%s differs between ranks: %s. It must be the same on all", what, text);
}

/* The object file that holds this code: the program, or libteng. */
typedef struct object {
    uintptr_t code;
    const char *name;
} object;
static int find_object(struct dl_phdr_info *info, size_t size, void *user)
{
    object *o = user;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || o->code < begin ||
            o->code - begin >= info->dlpi_phdr[i].p_memsz)
            continue;
        o->name = info->dlpi_name && info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
        return 1;
    }
    return 0;
}

/* A hash of that file; "unknown" where it cannot be read. */
static void program_hash(char *out, size_t size)
{
    static const char here = 0; /* of the same object as this function */
    object o = {(uintptr_t)&here, NULL};
    uint64_t hash = 0;
    dl_iterate_phdr(find_object, &o);
    FILE *f = o.name ? fopen(o.name, "rb") : NULL;
    char *buffer = f ? tg_alloc_quiet(1 << 20) : NULL;
    if (buffer) {
        for (size_t n; (n = fread(buffer, 1, 1 << 20, f)) > 0;)
            hash = tg_hash64(buffer, n, hash);
        snprintf(out, size, "%016llx", (unsigned long long)hash);
    } else {
        snprintf(out, size, "unknown");
    }
    tg_free(buffer);
    if (f) fclose(f);
}

/* Of fixed size, bytes only: it must be readable across versions and byte orders. */
enum { FIELDS = 3, FIELD = 64 };
static const char *const field_names[FIELDS] = {"the version of teng", "the byte order",
                                                "the program (a hash of its file)"};
static void own_fields(char fields[FIELDS][FIELD])
{
    const uint16_t order = 1;
    memset(fields, 0, FIELDS * FIELD);
    snprintf(fields[0], FIELD, "%s", teng_version());
    snprintf(fields[1], FIELD, "%s", *(const unsigned char *)&order ? "little" : "big");
    program_hash(fields[2], FIELD);
}

static teng_status compare_fields(tg_comm *c, char (*all)[FIELDS][FIELD], int64_t *counts,
                                  const char **values)
{
    char own[FIELDS][FIELD];
    own_fields(own);
    for (int r = 0; r < c->size; r++)
        counts[r] = FIELDS * FIELD;
    TG_TRY(tg_comm_all_gather(&c->world, TENG_U8, own, all, counts));
    for (int f = 0; f < FIELDS; f++) {
        for (int r = 0; r < c->size; r++) {
            all[r][f][FIELD - 1] = 0;
            values[r] = all[r][f];
        }
        TG_TRY(want_equal(c, field_names[f], values));
    }
    return TENG_OK;
}

static teng_status compare_fact(tg_comm *c, const tg_comm_fact *fact, const char **values)
{
    char *all;
    TG_TRY(tg_comm_gather_texts(c, fact->value, &all));
    const char *at = all;
    for (int r = 0; r < c->size; r++, at += strlen(at) + 1)
        values[r] = at;
    const teng_status status = want_equal(c, fact->name, values);
    tg_free(all);
    return status;
}

teng_status tg_comm_hello(tg_comm *c, const tg_comm_fact *facts, int n)
{
    if (c->size == 1) return TENG_OK;
    const size_t ranks = (size_t)c->size;
    char(*all)[FIELDS][FIELD] = tg_alloc(sizeof *all * ranks);
    int64_t *counts = tg_alloc(sizeof *counts * ranks);
    const char **values = tg_alloc(sizeof *values * ranks);
    teng_status status = all && counts && values ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) status = compare_fields(c, all, counts, values);
    for (int i = 0; i < n && status == TENG_OK; i++)
        status = compare_fact(c, &facts[i], values);
    tg_free(all);
    tg_free(counts);
    tg_free(values);
    return status;
}
