/*
 * Cells: the parts a model is made of. A cell owns parameters and child cells and has a forward function that
 * calls operators (teng/ops.h) and other cells. The same forward is traced once in GRAPH mode and called
 * every step in PYNATIVE mode. Cells hold no values: parameters live in the model that the root cell is given
 * to.
 *
 * Not thread-safe: a cell tree belongs to one thread at a time.
 */
#ifndef TENG_NN_H
#define TENG_NN_H

#include "teng/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct teng_cell teng_cell;
typedef struct teng_param teng_param;

/* in[n_in] are the cell's operands; returns its value, NULL after a failure. */
typedef teng_tensor *teng_forward(teng_cell *self, teng_tensor *const *in, int n_in);

/* A cell with `data_size` zeroed bytes of your own (teng_cell_data). type names it in listings. NULL on
 * failure. */
TENG_API teng_cell *teng_cell_create(const char *type, size_t data_size, teng_forward *forward);
/* Destroys the cell and its children; nulls *cell. A cell with a parent is destroyed by the parent alone. */
TENG_API void teng_cell_destroy(teng_cell **cell);
TENG_API void *teng_cell_data(teng_cell *cell);
/* Makes child a part of parent under `name` ("layers.0" may contain dots); parent owns it. Returns child, or
 * NULL (then child is destroyed) when the name is taken, child already has a parent, or an operand is NULL.
 */
TENG_API teng_cell *teng_cell_add(teng_cell *parent, const char *name, teng_cell *child);

typedef enum teng_init_kind { TENG_INIT_NORMAL, TENG_INIT_UNIFORM, TENG_INIT_CONST } teng_init_kind;
typedef enum teng_role { /* what weight decay and precision rules go by */
                         TENG_ROLE_WEIGHT,
                         TENG_ROLE_BIAS,
                         TENG_ROLE_NORM,
                         TENG_ROLE_EMBEDDING,
} teng_role;
typedef struct teng_init {
    teng_init_kind kind;
    double a, b; /* NORMAL: mean, deviation; UNIFORM: [a, b); CONST: a */
    teng_role role;
} teng_init;
/* A trained f32 parameter; its full name is the path of cell names and `name`, joined by dots. */
TENG_API teng_param *teng_cell_param(teng_cell *cell, const char *name, teng_dims dims, teng_init init);
/* Its value in the current trace; NULL (and an error) outside one, or when param is NULL. */
TENG_API teng_tensor *teng_value_at(teng_src at, teng_param *param);
#define teng_value(param) teng_value_at(TENG_HERE, param)

/* Calls a cell: its layer path and your line go with every operator inside. */
TENG_API teng_tensor *teng_call_at(teng_src at, teng_cell *cell, teng_tensor *const *in, int n_in);
#define teng_call(cell, ...)                                                                                 \
    teng_call_at(TENG_HERE, cell, (teng_tensor *[]){__VA_ARGS__},                                            \
                 (int)(sizeof((teng_tensor *[]){__VA_ARGS__}) / sizeof(teng_tensor *)))
/* Dropout as training wants it: x itself when not training or p is 0. Draws from the run's seed and step. */
TENG_API teng_tensor *teng_train_dropout_at(teng_src at, teng_tensor *x, double p);
#define teng_train_dropout(x, p) teng_train_dropout_at(TENG_HERE, x, p)
/* Whether the current trace trains (dropout on) or evaluates. */
TENG_API bool teng_is_training(void);

/* Number of parameters of the tree (elements), and a visit in definition order. */
TENG_API int64_t teng_cell_numel(const teng_cell *cell);
typedef void teng_param_visit(void *user, teng_param *param, const char *full_name);
TENG_API void teng_cell_visit(teng_cell *cell, teng_param_visit *visit, void *user);
TENG_API const teng_desc *teng_param_desc(const teng_param *param);

/* ---- mixed precision ---- */
/* O0 leaves the model as it is. O1: products in 16 bits, the rest in f32. O2: 16 bits, but norms, softmax and
 * losses do their arithmetic in f32 with f32 parameters. O3: their parameters too are read in 16 bits. AUTO:
 * products in 16 bits, norms, softmax and losses in f32, others in their widest operand. Sums are in f32 at
 * every level, and parameters are kept in f32 (Micikevicius et al. 2018). */
typedef enum teng_precision_level { TENG_O0, TENG_O1, TENG_O2, TENG_O3, TENG_AUTO } teng_precision_level;
TENG_API const char *teng_precision_level_name(teng_precision_level level);
typedef struct teng_precision {
    teng_precision_level level;
    teng_dtype dtype;             /* TENG_BF16 or TENG_F16 */
    const char *const *keep_fp32; /* patterns of layer paths that stay in f32: "*.norm", "model.layers.0.*" */
    int n_keep_fp32;
    bool stored_16; /* parameters may be 16 bits already (inference); else that is refused as a double
                       conversion */
} teng_precision;

/* ---- ready cells ---- */
/* y = x wᵀ + b; parameters "weight" [out, in] (normal, std) and "bias" [out] (zeros). */
TENG_API teng_cell *teng_nn_linear(int64_t in_features, int64_t out_features, bool bias, double std);
/* y = x w + b, "weight" [in, out] (GPT-2's Conv1D). */
TENG_API teng_cell *teng_nn_conv1d(int64_t in_features, int64_t out_features, bool bias, double std);
TENG_API teng_cell *teng_nn_embedding(int64_t vocab_size, int64_t hidden_size, double std);
/* The "weight" of an embedding or linear cell, to tie another cell to it. */
TENG_API teng_param *teng_nn_weight(teng_cell *cell);
TENG_API teng_cell *teng_nn_layer_norm(int64_t size, double eps, bool bias);
TENG_API teng_cell *teng_nn_rms_norm(int64_t size, double eps);

/* ---- language models ---- */
/* A causal language model from a Hugging Face config.json object given as text: model_type llama, mistral,
 * qwen2, qwen3, gpt2, mixtral, qwen3_moe. Keys that are absent take the defaults of the family in
 * transformers, except vocab_size, which is required; a key that would change the maths and is not
 * implemented is refused by name and value, as is a key that has another name in this family. Parameter names
 * are those of the family's safetensors files. Called with (tokens i32 [B, T]) → logits [B, T, V]; with
 * (tokens, labels i32 [B, T], already shifted) → mean cross-entropy over labels that are not -100, f32
 * scalar. Training with dropout of attention weights is refused. */
TENG_API teng_cell *teng_lm_create(const char *config_json);
/* The complete config.json of the model (defaults filled in, unknown harmless keys kept). Owned by the cell.
 */
TENG_API const char *teng_lm_config(teng_cell *lm);

#ifdef __cplusplus
}
#endif
#endif
