/* What rooms above nn need of cells: parameters by full name and role, traces of a root cell. */
#ifndef TG_NN_CELL_H
#define TG_NN_CELL_H

#include "base/json.h"
#include "base/vec.h"
#include "graph/graph.h"
#include "teng/nn.h"

/* A parameter as the trainer sees it. */
typedef struct tg_param_info {
    const char *name; /* full path, owned by the cell tree */
    teng_desc desc;
    teng_init init;
} tg_param_info;
/* Fixes the full names below root (idempotent, until cells are added) and lists all parameters once each, in
 * definition order. The array is the root's; valid until cells are added. */
teng_status tg_nn_params(teng_cell *root, const tg_param_info **out, size_t *n);
/* Traces root into g: in[n_in] are graph inputs. training switches dropout. Leaves g with appended forward
 * nodes; the root's value is returned. The graph input "rng" u64[2] (key, step) is made when dropout asked
 * for it. */
teng_tensor *tg_nn_trace(teng_cell *root, tg_graph *g, teng_tensor *const *in, int n_in, bool training);
/* The same with all that can be chosen. */
typedef struct tg_nn_options {
    bool training, differentiate; /* dropout; backward will follow */
    const teng_precision
        *precision; /* NULL is O0; the root's value comes back in f32 where it would be 16 bits */
} tg_nn_options;
teng_tensor *tg_nn_trace_with(teng_cell *root, tg_graph *g, teng_tensor *const *in, int n_in,
                              const tg_nn_options *options);

/* Facts about a language model; TENG_INVALID when the cell is not one. */
typedef struct tg_lm_info {
    const char *family;
    const char *backbone; /* first part of most parameter names ("transformer"); some files leave it out */
    int64_t vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, max_positions,
        intermediate_size;
    int64_t params;        /* all */
    int64_t params_matmul; /* elements that take part in a token's matrix products (no embedding lookup,
                              norms, biases) */
    int64_t num_experts, experts_per_token; /* of a mixture of experts, else 0 */
    bool tied;
    bool positions_are_hard;  /* learned: a longer sequence is impossible, not just unwise */
    const char *embedding;    /* full name of the table [V, C], which is the head too when tied */
    const char *const *extra; /* ends of names that files hold beside parameters (masks); NULL at the end */
} tg_lm_info;
teng_status tg_lm_get_info(teng_cell *lm, tg_lm_info *out);
/* From now on the loss is that of the labels alone, without what routers of mixtures of experts add in
 * training. */
teng_status tg_lm_score_labels_only(teng_cell *lm);
/* Keeps the matrices of products, and a tied table of tokens, in 16 bits (dtype) or f32, for a model that is
 * used and not trained: rows stay f32 and weights are widened as they are read, so results are those of the
 * same values in f32. Mixtures of experts stay as they are. Before parameters get memory. */
teng_status tg_lm_store_weights(teng_cell *lm, teng_dtype dtype);
/* Before a trace with positions (below): how many tokens its caches of keys and values hold, at most
 * max_positions. Their names contain the number, so that a trace made for another room has caches of its own.
 */
teng_status tg_lm_set_room(teng_cell *lm, int64_t tokens);
/* teng_lm_create from the parsed config.json. */
teng_cell *tg_lm_create_json(const json_t *config);
/* One tensor of a model folder and where its values lie in a parameter. */
typedef struct tg_lm_part {
    char *name;
    teng_desc desc;
    int64_t offset; /* of its first element */
} tg_lm_part;
typedef TG_VEC(tg_lm_part) tg_lm_parts;
/* The tensors in which the family's files keep a parameter: itself, or of a mixture each expert's matrices.
 * Appends; free with tg_lm_parts_free. */
teng_status tg_lm_file_parts(teng_cell *lm, const tg_param_info *param, tg_lm_parts *parts);
void tg_lm_parts_free(tg_lm_parts *parts);
/* Training FLOPs a token at sequence length T: 6 · params_matmul + 6 · layers · heads · head_dim · T (causal
 * attention, forward and backward counted as PaLM's appendix B with the causal half). */
double tg_lm_flops_per_token(const tg_lm_info *info, int64_t seq_len);

/* Initial value of one parameter into host f32 memory: depends on (seed, full name, index) alone. */
void tg_nn_init_param(const tg_param_info *param, uint64_t seed, float *out);

#endif
