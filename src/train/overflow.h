/*
 * Where a step that is not finite went wrong: the first value, in execution order, that holds an infinity or
 * a NaN. Found by running the step again, a node at a time, which costs nothing while all is well.
 */
#ifndef TG_TRAIN_OVERFLOW_H
#define TG_TRAIN_OVERFLOW_H

#include "train/step.h"

typedef struct tg_overflow {
    bool found;
    int64_t micro_batch, order;      /* order: of the node among those that ran; 0: before all */
    int64_t infinities, nans, first; /* first: flat index of the first of them */
    char text[768]; /* "first not finite in backward: linear_cross_entropy_grad of lm_head (…): …" */
} tg_overflow;

/* Looks at the outputs of a node that has just run (host memory). True when one holds no finite value; *out
 * is then filled. */
bool tg_overflow_in(const tg_node *node, void *const *data, tg_overflow *out);
/* Runs the forward and backward passes of a dropped step again and looks. Parameters and optimizer states do
 * not change. not found: every value is finite, only the norm of the gradients is not. */
teng_status tg_step_find_overflow(tg_step *s, int64_t step, double loss_scale, const tg_step_feed *feeds,
                                  tg_overflow *out);

#endif
