/* What a cell is made of, for the files of this room only. */
#ifndef TG_NN_CELL_IMPL_H
#define TG_NN_CELL_IMPL_H

#include "base/vec.h"
#include "nn/cell.h"

struct teng_param {
    teng_cell *cell;
    char *name; /* within the cell */
    char *full; /* path from the root, NULL until tg_nn_params */
    teng_desc desc;
    teng_init init;
    tg_mark mark; /* how it is split among ranks */
};

struct teng_cell {
    char *type;
    char *name; /* within the parent, NULL for a root */
    char *path; /* from the root, "" for the root, NULL until tg_nn_params */
    teng_cell *parent;
    teng_forward *forward;
    void *data;
    TG_VEC(teng_param *) params;
    TG_VEC(teng_cell *) children;
    /* of a root */
    TG_VEC(tg_param_info) infos;
    bool named; /* paths and infos are as the tree is now */
};

/* Records a failure inside a forward function: "path (type, file:line < …): message". Returns NULL. */
teng_tensor *tg_cell_fail(const teng_cell *cell, teng_status status, const char *fmt, ...) TENG_PRINTF(3, 4);
/* Whether a ready cell was called with as many operands as it takes; fails otherwise. */
bool tg_cell_takes(const teng_cell *cell, int n_in, int wanted);

/* Splits the parameters of a linear, conv1d or embedding cell on the tensor axis: their outputs (columns,
 * rows of the table), or their inputs, whose products then are parts of a sum. mark: all but dim. Returns
 * cell, NULL stays NULL. */
typedef enum tg_split { TG_SPLIT_OUT, TG_SPLIT_IN } tg_split;
teng_cell *tg_cell_split(teng_cell *cell, tg_split split, tg_mark mark);

#endif
