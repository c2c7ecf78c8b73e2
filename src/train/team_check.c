/*
 * What ranks must have in common, compared before the first step: the configuration, the data,
 * and the bits of whatever several of them hold. Ranks that differ would not fail; they would train a model
 * that is nobody's.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "device/cpu_isa.h"
#include "train/team.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- facts ---- */
/* The first fact that is another here than on rank 0: an error that tells both. */
static teng_status compare(const tg_team *t, const json_t *first, const json_t *own, const char *remedy)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)own, name, value)
    {
        const json_t *other = json_object_get(first, name);
        if (json_equal(other, value)) continue;
        char *there = other ? tg_json_text(other, 0) : NULL, *here = tg_json_text(value, 0);
        const teng_status status =
            tg_fail(TENG_INVALID, "%s is %.200s on rank 0 and %.200s on rank %d: %s", name,
                    there ? there : "missing", here ? here : "?", t->rank, remedy);
        tg_free(there);
        tg_free(here);
        return status;
    }
    return TENG_OK;
}

teng_status tg_team_same_facts(tg_team *t, const json_t *facts, const char *remedy)
{
    if (!tg_team_is_many(t)) return TENG_OK;
    char *own = tg_json_text(facts, 0), *text = NULL;
    json_t *first = NULL;
    teng_status status = tg_team_agree(t, own ? TENG_OK : TENG_MEMORY);
    if (status == TENG_OK) status = tg_team_first_text(t, own, &text);
    if (status == TENG_OK) {
        status = tg_json_parse("rank 0", text, strlen(text), &first);
        if (status == TENG_OK) status = compare(t, first, facts, remedy);
        status = tg_team_agree(t, status);
    }
    json_decref(first);
    tg_free(own);
    tg_free(text);
    return status;
}

/* Keys that may differ: they change how fast a rank is and what it tells, not what it computes. */
static bool may_differ(const char *key)
{
    static const char *const keys[] = {"context.threads", "context.log_level", "data.prefetch",
                                       "offload.path"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static teng_status config_facts(const tg_config *cfg, json_t **out)
{
    json_t *facts = json_object(), *config = tg_config_json(cfg), *about;
    const char *key;
    int failed = !facts || !config ||
                 json_object_set_new(facts, "the instruction set (context.cpu_isa)",
                                     json_string(tg_cpu_isa_name(tg_cpu_isa_current())));
    json_object_foreach(config, key, about)
    {
        if (!may_differ(key)) failed |= json_object_set(facts, key, json_object_get(about, "value"));
    }
    json_decref(config);
    *out = facts;
    return failed ? tg_fail(TENG_MEMORY, "out of memory for the comparison of ranks") : TENG_OK;
}

teng_status tg_team_same_config(tg_team *t, const tg_config *cfg)
{
    if (!tg_team_is_many(t)) return TENG_OK;
    json_t *facts = NULL;
    TG_TRY(tg_team_hello(t));
    teng_status status = tg_team_agree(t, config_facts(cfg, &facts));
    if (status == TENG_OK)
        status = tg_team_same_facts(t, facts, "start all ranks with the same program and configuration");
    json_decref(facts);
    return status;
}

/* ---- copies ---- */
typedef struct told {
    uint64_t key, bits; /* key: of name and box */
} told;

static uint64_t key_of(const tg_team_copy *c)
{
    return tg_hash64(c->name, strlen(c->name), c->box);
}

/* The lowest other rank that holds different bits of one of ours, and which of ours; false: none does. all
 * holds counts[r] entries of each rank. */
static bool find_difference(const tg_team *t, const tg_team_copy *copies, size_t n, const told *all,
                            const int64_t *counts, size_t *which, int *other)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t key = key_of(&copies[i]);
        const told *at = all;
        for (int r = 0; r < t->ranks; at += counts[r++]) {
            /* Lists of equal stages have equal orders: the place of ours is tried first. */
            int64_t k = (int64_t)i < counts[r] && at[i].key == key ? (int64_t)i : 0;
            while (k < counts[r] && at[k].key != key)
                k++;
            if (k == counts[r] || at[k].bits == copies[i].bits) continue;
            *which = i;
            *other = r;
            return true;
        }
    }
    return false;
}

static teng_status gather_told(tg_team *t, const told *own, size_t n, told **all, int64_t **counts)
{
    const int64_t count = (int64_t)n;
    int64_t total = 0;
    *all = NULL;
    *counts = tg_alloc(sizeof **counts * (size_t)t->ranks * 2);
    if (!*counts) return TENG_MEMORY;
    int64_t *bytes = *counts + t->ranks;
    for (int r = 0; r < t->ranks; r++)
        bytes[r] = 1;
    TG_TRY(tg_comm_all_gather(tg_comm_world(t->comm), TENG_I64, &count, *counts, bytes));
    for (int r = 0; r < t->ranks; r++) {
        total += (*counts)[r];
        bytes[r] = (*counts)[r] * (int64_t)sizeof(told);
    }
    *all = tg_alloc(sizeof **all * (size_t)(total + 1));
    if (!*all) return TENG_MEMORY;
    return tg_comm_all_gather(tg_comm_world(t->comm), TENG_U8, own, *all, bytes);
}

teng_status tg_team_same_copies(tg_team *t, const tg_team_copy *copies, size_t n, const char *when)
{
    if (!tg_team_is_many(t)) return TENG_OK;
    told *own = tg_alloc(sizeof *own * (n + 1)), *all = NULL;
    int64_t *counts = NULL;
    size_t which = 0;
    int other = 0;
    teng_status status = tg_team_agree(t, own ? TENG_OK : TENG_MEMORY);
    for (size_t i = 0; i < n && status == TENG_OK; i++)
        own[i] = (told){key_of(&copies[i]), copies[i].bits};
    if (status == TENG_OK) status = gather_told(t, own, n, &all, &counts);
    if (status == TENG_OK) {
        if (find_difference(t, copies, n, all, counts, &which, &other))
            status =
                tg_fail(TENG_STATE,
                        "%s: %s is not the same on rank %d and rank %d, which hold the same part of it: the "
                        "copies have gone apart",
                        when, copies[which].name, t->rank < other ? t->rank : other,
                        t->rank < other ? other : t->rank);
        status = tg_team_agree(t, status);
    }
    tg_free(own);
    tg_free(all);
    tg_free(counts);
    return status;
}
