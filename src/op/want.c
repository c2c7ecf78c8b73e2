/* Checks that infer functions share; see want.h. */
#include "op/want.h"

#include "graph/graph.h"
#include "op/op_list.h"

static const char *text(char *buf, const teng_op_call *call, int i)
{
    return tg_desc_text(buf, &call->in[i]);
}

teng_status tg_want_float(const teng_op_call *call, int i, const char *name)
{
    const teng_dtype t = call->in[i].dtype;
    if (t == TENG_F32 || t == TENG_BF16 || t == TENG_F16) return TENG_OK;
    char buf[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "%s is %s; it must be f32, bf16 or f16", name, text(buf, call, i));
}

teng_status tg_want_dtype(const teng_op_call *call, int i, const char *name, teng_dtype dtype)
{
    if (call->in[i].dtype == dtype) return TENG_OK;
    char buf[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "%s is %s; its elements must be %s", name, text(buf, call, i),
                   teng_dtype_name(dtype));
}

static bool same_dims(const teng_desc *a, const teng_desc *b)
{
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

teng_status tg_want_dims(const teng_op_call *call, int i, const char *name, const teng_desc *d,
                         const char *of)
{
    if (same_dims(&call->in[i], d)) return TENG_OK;
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    const teng_desc want = tg_desc_cast(d, call->in[i].dtype);
    return tg_fail(TENG_INVALID, "%s is %s; it must be %s, the shape of %s", name, text(a, call, i),
                   tg_desc_text(b, &want), of);
}

teng_status tg_want_positions(const teng_op_call *call, int i, int64_t n)
{
    const teng_desc *d = &call->in[i];
    if (d->dtype == TENG_I32 && d->ndim == 1 && d->dims[0] == n) return TENG_OK;
    char buf[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "positions are %s; they must be i32[%lld], one for each row",
                   text(buf, call, i), (long long)n);
}

teng_status tg_want_like(const teng_op_call *call, int i, const char *name, int j, const char *other)
{
    if (tg_desc_equal(&call->in[i], &call->in[j])) return TENG_OK;
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "%s is %s and %s is %s; they must agree", name, text(a, call, i), other,
                   text(b, call, j));
}

teng_status tg_want_scalar(const teng_op_call *call, int i, const char *name)
{
    char text[TG_DESC_TEXT];
    const teng_desc *x = &call->in[i];
    if (x->ndim == 0 && x->dtype == TENG_F32) return TENG_OK;
    return tg_fail(TENG_INVALID, "%s is %s; it must be an f32 scalar", name, tg_desc_text(text, x));
}

teng_status tg_want_weight(const teng_op_call *call, int i, const char *name, int64_t n)
{
    const teng_desc *w = &call->in[i];
    if (w->ndim == 1 && w->dims[0] == n && (w->dtype == TENG_F32 || w->dtype == call->in[0].dtype))
        return TENG_OK;
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "%s is %s and x is %s; %s must be [%lld] in f32 or %s", name,
                   text(a, call, i), text(b, call, 0), name, (long long)n,
                   teng_dtype_name(call->in[0].dtype));
}

teng_status tg_want_ndim(const teng_op_call *call, int i, const char *name, int ndim)
{
    if (call->in[i].ndim >= ndim) return TENG_OK;
    char buf[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "%s is %s; it must have at least %d dimension%s", name, text(buf, call, i),
                   ndim, ndim == 1 ? "" : "s");
}

teng_status tg_want_axis(const teng_op_call *call, int64_t axis, int *out)
{
    *out = tg_desc_axis(&call->in[0], axis);
    if (*out >= 0) return TENG_OK;
    char buf[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "axis %lld is outside x, which is %s", (long long)axis, text(buf, call, 0));
}

teng_desc tg_desc_rows(const teng_desc *d, teng_dtype dtype)
{
    return tg_desc_make(dtype, d->ndim - 1, d->dims);
}

teng_desc tg_desc_cast(const teng_desc *d, teng_dtype dtype)
{
    return tg_desc_make(dtype, d->ndim, d->dims);
}

teng_status tg_want_piece(const char *who, int64_t entries, int64_t begin, int64_t total)
{
    if (!begin && !total) return TENG_OK;
    if (begin >= 0 && begin <= total && entries <= total - begin) return TENG_OK;
    return tg_fail(TENG_INVALID, "%s %lld entries; from %lld on they leave the vocabulary of %lld", who,
                   (long long)entries, (long long)begin, (long long)total);
}

int64_t tg_axis_of(const teng_tensor *x, int64_t axis)
{
    const int i = x ? tg_desc_axis(teng_tensor_desc(x), axis) : -1;
    return i >= 0 ? i : axis;
}

bool tg_op_is_cast_param(const teng_tensor *t)
{
    return t->node && t->node->op == &tg_op_cast && t->node->in[0]->kind == TG_VALUE_PARAM &&
           t->node->in[0]->desc.dtype == TENG_F32;
}
