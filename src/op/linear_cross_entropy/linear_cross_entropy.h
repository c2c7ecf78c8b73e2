/*
 * What the specs, the kernels and the cases of linear_cross_entropy share, and the loss of a vocabulary that
 * is split over ranks (Shoeybi et al. 2019, section 3), where no rank may hold all logits:
 *
 *     parts, hit = linear_lse(x, w, labels)        w S(0) → parts S(last), hit P: each rank its own entries
 *     lse        = lse_combine(parts)              of gathered [rows, ranks] f32: small
 *     loss       = label_loss(lse, hit, labels, valid)
 *
 * A loss that is differentiated is one node, linear_cross_entropy_by_vocabulary, in which the ranks tell each
 * other the sums of some rows while their logits are at hand, so that none are computed twice.
 *
 * All of them have ordinary placement rules, so that placements and redistributions come out by propagation:
 * tg_linear_ce_by_vocabulary puts them in the place of a loss node in the graph of all ranks, `parts` being
 * the number of ranks of the axis that splits w, before placements are given. The gradient's node of
 * linear_cross_entropy stays as it is, its rule says how it is split. cross_entropy of logits that are split
 * along the vocabulary goes the same way, with logits_lse in the place of linear_lse.
 */
#ifndef TG_OP_LINEAR_CROSS_ENTROPY_H
#define TG_OP_LINEAR_CROSS_ENTROPY_H

#include "graph/graph.h"

typedef struct tg_linear_ce_attr { /* of linear_cross_entropy: the first member alone */
    int64_t ignore_index;
    int64_t outputs; /* of the gradient: one of the below */
    /* w is a piece of a vocabulary: entries begin, begin + 1, … of `total`; 0: it is all. */
    int64_t begin, total;
} tg_linear_ce_attr;
enum { TG_LINEAR_CE_BOTH, TG_LINEAR_CE_DX, TG_LINEAR_CE_DW };

typedef struct tg_linear_lse_attr {
    int64_t ignore_index;
    int64_t parts;        /* pieces of the vocabulary, cut as by tg_mesh_cut */
    int64_t begin, total; /* as above */
} tg_linear_lse_attr;

typedef struct tg_linear_ce_ranks_attr { /* of linear_cross_entropy_by_vocabulary */
    int64_t ignore_index;
    int64_t axes, parts;  /* a tg_axis_set, the ranks along it */
    int64_t begin, total; /* as above */
} tg_linear_ce_ranks_attr;
/* Bytes that a rank with so many rows tells each other one. */
static inline double tg_linear_ce_row_bytes(int64_t rows)
{
    return 3.0 * sizeof(float) * (double)rows;
}

/* Checks x, w and labels. */
teng_status tg_linear_ce_infer_inputs(const teng_op_call *call);

/* Appends to g what gives the outputs of `node`, a linear_cross_entropy(_with_grad) or cross_entropy,
 * from operands in g that stand for the node's (n_in of them, `valid` may have come to them), by pieces of
 * the vocabulary of ranks along axes; scope, source and phase are the node's. out[i] stands for the node's
 * output i. */
teng_status tg_linear_ce_by_vocabulary(tg_graph *g, const tg_node *node, int n_in, teng_tensor *const *in,
                                       int64_t axes, int64_t parts, teng_tensor **out);

#endif
