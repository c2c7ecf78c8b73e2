/*
 * Comparison with a reference: a model folder is run on the batch of a dump that another implementation made
 * (scripts/make_golden.py), and logits, loss, each gradient and the losses of a short training are held
 * against the dump's.
 */
#ifndef TG_TRAIN_VERIFY_H
#define TG_TRAIN_VERIFY_H

#include "base/vec.h"
#include "nn/cell.h"
#include "tensor/desc.h"

typedef struct tg_verify_options {
    const char *device; /* "cpu" */
    int threads;        /* 0: all */
    bool pynative;
    teng_precision precision; /* O0: f32 */
} tg_verify_options;

typedef struct tg_verify_item {
    char *name;    /* as the dump has it: "loss", "logits", "grad.<parameter>", "adamw_loss" */
    char *problem; /* why there is nothing to compare: missing, unexpected, of another shape; else NULL */
    bool holds;
    double error;              /* relative L2; of losses the largest relative difference */
    double max_abs;            /* largest difference of two elements */
    char worst[TG_INDEX_TEXT]; /* where that is, "[1,17,203]"; "" when all are equal */
    double tolerance;          /* of error */
    const char *why;           /* where the tolerance comes from */
} tg_verify_item;

typedef struct tg_verify_report {
    tg_lm_info info;
    int64_t rows, cols;           /* of the batch */
    int64_t steps;                /* of the short training */
    TG_VEC(tg_verify_item) items; /* the worst first: by error / tolerance, those with a problem before all */
    size_t failed;
    const struct tolerance *tolerances; /* of the precision, by kind of item */
} tg_verify_report;

/* An error means that nothing could be compared; differences are in the report. tg_verify_free in any case.
 */
teng_status tg_verify(const char *model_dir, const char *golden, const tg_verify_options *options,
                      tg_verify_report *out);
void tg_verify_free(tg_verify_report *report);

#endif
