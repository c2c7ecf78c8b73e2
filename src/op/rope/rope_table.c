/*
 * Shared tables of cos and sin. Angles are computed in double: at position 100000 an f32 product would have
 * lost two digits. Scaling follows Hugging Face transformers' modeling_rope_utils ("linear",
 * "llama3", "dynamic", "yarn").
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

static const double two_pi = 6.283185307179586477;

/* Dimension, not rounded, whose wave turns so many times in original_max_position. */
static double yarn_dimension(const teng_rope_options *o, int64_t rotary_dim, double turns)
{
    return (double)rotary_dim * log((double)o->original_max_position / (turns * two_pi)) /
           (2 * log(o->theta));
}

static double yarn_frequency(const teng_rope_options *o, int64_t rotary_dim, int64_t i, double f)
{
    double low = yarn_dimension(o, rotary_dim, o->beta_fast),
           high = yarn_dimension(o, rotary_dim, o->beta_slow);
    if (!o->exact_range) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(rotary_dim - 1));
    if (low == high) high += 0.001;
    const double divided = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return f / o->factor * divided + f * (1 - divided);
}

/* "Neural tangent kernel" scaling: a theta that stretches the longest wave to the sequence. */
static double dynamic_theta(const teng_rope_options *o, int64_t rotary_dim, int64_t length)
{
    const double stretch = (double)length / (double)o->original_max_position;
    if (stretch <= 1 || rotary_dim <= 2) return o->theta;
    return o->theta *
           pow(o->factor * stretch - (o->factor - 1), (double)rotary_dim / (double)(rotary_dim - 2));
}

double tg_rope_frequency(const teng_rope_options *o, int64_t rotary_dim, int64_t i, int64_t length)
{
    if (o->type == TENG_ROPE_DYNAMIC)
        return pow(dynamic_theta(o, rotary_dim, length), -2.0 * (double)i / (double)rotary_dim);
    const double f = pow(o->theta, -2.0 * (double)i / (double)rotary_dim);
    if (o->type == TENG_ROPE_LINEAR) return f / o->factor;
    if (o->type == TENG_ROPE_YARN) return yarn_frequency(o, rotary_dim, i, f);
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
           p->high_freq_factor == o->high_freq_factor &&
           p->original_max_position == o->original_max_position && p->beta_fast == o->beta_fast &&
           p->beta_slow == o->beta_slow && p->exact_range == o->exact_range &&
           p->attention_factor == o->attention_factor && p->turn == o->turn && p->later == o->later &&
           p->length == o->length;
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
    const tg_row_map rows = tg_rope_rows(o);
    const int64_t length = o->length ? o->length : o->offset + t;
    const double size = o->attention_factor > 0 ? o->attention_factor : 1;
    for (int64_t i = 0; i < half; i++) {
        const double f = tg_rope_frequency(o, rotary_dim, i, length);
        for (int64_t p = 0; p < t; p++) {
            const double angle = (double)tg_row_at(&rows, p) * f;
            angles[p * rotary_dim + i] = (float)(size * cos(angle));
            angles[p * rotary_dim + half + i] = (float)(size * sin(angle));
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
