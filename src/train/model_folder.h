/* Model folders as wholes: what is in one, one written anew in another element type or cut, two compared. */
#ifndef TG_TRAIN_MODEL_FOLDER_H
#define TG_TRAIN_MODEL_FOLDER_H

#include "base/vec.h"
#include "nn/cell.h"

typedef struct tg_folder_info {
    tg_lm_info lm;
    size_t tensors;                     /* in the files */
    uint64_t bytes;                     /* of their values */
    int64_t elements[TENG_DTYPE_COUNT]; /* by element type */
    double flops_per_token;             /* of training, at the longest sequence */
    /* To train it, activations not counted: f32 weights, gradients and two moments of AdamW, 16 bytes a
     * parameter; from O1 on 2 more for the 16-bit copy of each that is cast: in O1 and O2 those of matrix
     * products, in O3 biases and norms too. */
    uint64_t train_bytes[TENG_O3 + 1]; /* by precision.level */
} tg_folder_info;
/* Here dir is a model folder, a run folder (its newest whole checkpoint counts) or a checkpoint of a run.
 * Opens it and checks config.json and the names and shapes of all tensors against each other. */
teng_status tg_folder_get_info(const char *dir, tg_folder_info *out);

/* Writes the model of `in` as the folder `out`: tensors under the family's own names, floats as `dtype`
 * (TENG_DTYPE_COUNT: as in the first file), in files of at most shard_bytes (0: one). Configuration,
 * generation settings, tokenizer and chat template go along. One tensor at a time is in memory. */
teng_status tg_folder_convert(const char *in, const char *out, teng_dtype dtype, uint64_t shard_bytes);

typedef struct tg_folder_diff {
    char *name;
    char *problem;  /* only in one, or of another shape; NULL: compared */
    bool same_bits; /* also in element type */
    double max_abs, rel_l2;
} tg_folder_diff;
typedef TG_VEC(tg_folder_diff) tg_folder_diffs;
/* Every tensor of two sets of weights (folders, index or safetensors files), those with a problem first, then
 * by falling rel_l2. Free with tg_folder_diffs_free in any case. */
teng_status tg_folder_compare(const char *a, const char *b, tg_folder_diffs *out);
void tg_folder_diffs_free(tg_folder_diffs *diffs);

#endif
