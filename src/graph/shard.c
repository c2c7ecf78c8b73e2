/* teng_shard: a mark that a value carries until the parallel room reads it. Nothing else looks at marks. */
#include "teng/parallel.h"

#include "base/fail.h"
#include "graph/graph.h"

static const tg_axis axes[] = {TG_AXIS_DATA, TG_AXIS_EXPERT, TG_AXIS_CONTEXT, TG_AXIS_TENSOR};

teng_tensor *teng_shard(teng_tensor *t, teng_axis axis, int dim)
{
    if (!t) {
        if (teng_error_status() == TENG_OK) tg_fail(TENG_INVALID, "teng_shard: the tensor is NULL");
        return NULL;
    }
    if ((unsigned)axis >= sizeof axes / sizeof *axes) {
        tg_fail(TENG_INVALID, "teng_shard: %d is no axis of teng_axis", (int)axis);
        return NULL;
    }
    if (dim < -t->desc.ndim || dim >= t->desc.ndim) {
        tg_fail(TENG_INVALID, "teng_shard: dimension %d of %s, which has %d", dim,
                t->name ? t->name : "a value", t->desc.ndim);
        return NULL;
    }
    t->mark.dim[axes[axis]] = (int8_t)(1 + (dim < 0 ? dim + t->desc.ndim : dim));
    if (axis == TENG_AXIS_DATA) t->mark.dim[TG_AXIS_REPLICA] = t->mark.dim[TG_AXIS_DATA];
    return t;
}
