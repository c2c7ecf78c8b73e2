/*
 * Shared tables of cos and sin. Angles are computed in double: at position 100000 an f32 product would have
 * lost two digits. Scaling follows Hugging Face transformers' modeling_rope_utils ("linear", "llama3").
 */
#include "op/rope/rope_table.h"

#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

typedef struct entry {
    tg_rope_table table; /* first: what users hold */
    int64_t t;
    teng_rope_options options;
    int users;
    float *angles;
    struct entry *next;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *entries;

double tg_rope_frequency(const teng_rope_options *o, int64_t rotary_dim, int64_t i)
{
    static const double two_pi = 6.283185307179586477;
    const double f = pow(o->theta, -2.0 * (double)i / (double)rotary_dim);
    if (o->type == TENG_ROPE_LINEAR) return f / o->factor;
    if (o->type != TENG_ROPE_LLAMA3) return f;
    /* Long waves are stretched by factor, short ones stay, those between are blended. */
    const double turns = (double)o->original_max_position * f / two_pi;
    if (turns < o->low_freq_factor) return f / o->factor;
    if (turns > o->high_freq_factor) return f;
    const double smooth = (turns - o->low_freq_factor) / (o->high_freq_factor - o->low_freq_factor);
    return (1.0 - smooth) * f / o->factor + smooth * f;
}

static bool same(const entry *e, int64_t t, int64_t rotary_dim, const teng_rope_options *o)
{
    const teng_rope_options *p = &e->options;
    return e->t == t && e->table.rotary_dim == rotary_dim && p->type == o->type && p->offset == o->offset &&
           p->theta == o->theta && p->factor == o->factor && p->low_freq_factor == o->low_freq_factor &&
           p->high_freq_factor == o->high_freq_factor && p->original_max_position == o->original_max_position;
}

static entry *create(int64_t t, int64_t rotary_dim, const teng_rope_options *o)
{
    entry *e = tg_calloc(1, sizeof *e);
    float *angles = tg_alloc_aligned(sizeof(float) * (size_t)(t * rotary_dim));
    if (!e || !angles) {
        tg_free(e);
        tg_free_aligned(angles);
        return NULL;
    }
    *e = (entry){.table = {rotary_dim, angles}, .t = t, .options = *o, .angles = angles};
    const int64_t half = rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const double f = tg_rope_frequency(o, rotary_dim, i);
        for (int64_t p = 0; p < t; p++) {
            const double angle = (double)(o->offset + p) * f;
            angles[p * rotary_dim + i] = (float)cos(angle);
            angles[p * rotary_dim + half + i] = (float)sin(angle);
        }
    }
    return e;
}

tg_rope_table *tg_rope_table_get(int64_t t, int64_t rotary_dim, const teng_rope_options *o)
{
    pthread_mutex_lock(&lock);
    entry *e = entries;
    while (e && !same(e, t, rotary_dim, o))
        e = e->next;
    if (!e && (e = create(t, rotary_dim, o))) {
        e->next = entries;
        entries = e;
    }
    if (e) e->users++;
    pthread_mutex_unlock(&lock);
    return e ? &e->table : NULL;
}

void tg_rope_table_put(void *table)
{
    pthread_mutex_lock(&lock);
    for (entry **at = &entries; *at; at = &(*at)->next) {
        entry *e = *at;
        if ((void *)e != table) continue;
        if (--e->users == 0) {
            *at = e->next;
            tg_free_aligned(e->angles);
            tg_free(e);
        }
        break;
    }
    pthread_mutex_unlock(&lock);
}
