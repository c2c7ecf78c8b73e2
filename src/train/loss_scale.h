/*
 * The factor that keeps small fp16 gradients from vanishing, and when it changes. Dynamic: an overflow
 * divides it, a window of steps without one multiplies it (Micikevicius et al. 2018, section 3.2). Knows no
 * tensor.
 */
#ifndef TG_TRAIN_LOSS_SCALE_H
#define TG_TRAIN_LOSS_SCALE_H

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum tg_loss_scale_mode { TG_SCALE_NONE, TG_SCALE_FIXED, TG_SCALE_DYNAMIC } tg_loss_scale_mode;
typedef struct tg_loss_scale_options {
    tg_loss_scale_mode mode;
    double initial, factor, minimum;
    int64_t window;
    int64_t max_overflows; /* dropped steps in a row before a training gives up */
} tg_loss_scale_options;

typedef struct tg_loss_scale {
    double scale;
    int64_t good;      /* steps without overflow since the scale changed */
    int64_t in_row;    /* dropped steps since the last good one */
    int64_t overflows; /* dropped steps, all */
} tg_loss_scale;

/* Zeros take their defaults. dynamic: 2^24, factor 2, minimum 1, window 2000; fixed: 128; none: 1. A training
 * without a scale gives up after 100 dropped steps in a row, with one after 1000. */
tg_loss_scale_options tg_loss_scale_fill(tg_loss_scale_options options);
tg_loss_scale tg_loss_scale_begin(const tg_loss_scale_options *options);
/* After a step: finite, or dropped. loss_finite: the forward pass was; a smaller scale cannot mend one that
 * was not. True: the scale has fallen and the same batch is worth another try. */
bool tg_loss_scale_adjust(tg_loss_scale *s, const tg_loss_scale_options *options, bool finite,
                          bool loss_finite);

/* As members of a checkpoint's state, and back; absent ones leave *s as it is. */
teng_status tg_loss_scale_save(const tg_loss_scale *s, json_t *state);
teng_status tg_loss_scale_load(tg_loss_scale *s, const json_t *state, const char *where);

#endif
