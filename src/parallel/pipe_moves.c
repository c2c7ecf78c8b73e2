/*
 * What a stage of a pipeline sends in a step: of the redistributions of the whole graph those of its own
 * pieces, and its messages to other stages. Not here: the few bytes with which the stages agree on the loss
 * and the norm of a step.
 */
#include "base/fail.h"
#include "parallel/pipe_cut.h"
#include "tensor/desc.h"

static teng_status add_message(tg_parallel *layout, const char *op, tg_phase phase, const teng_desc *whole,
                               const char *value, double bytes, const char *where)
{
    const tg_parallel_move move = {.op = op,
                                   .axes = 1u << TG_AXIS_PIPELINE,
                                   .phase = phase,
                                   .bytes = bytes,
                                   .desc = *whole,
                                   .value = value ? tg_arena_strdup(layout->arena, value) : NULL,
                                   .where = tg_arena_strdup(layout->arena, where)};
    return move.where && tg_vec_push(&layout->moves, move) ? TENG_OK : TENG_MEMORY;
}

/* A value of this stage to a piece that reads it. */
static teng_status add_edge(const tg_pipe_cut *cut, const tg_pipe_edge *edge, tg_parallel *layout)
{
    const teng_tensor *v = cut->whole->values.data[edge->value];
    tg_strbuf where = {0};
    tg_strbuf_printf(&where, "piece %d, made by ", edge->to);
    tg_node_where(v->node, &where);
    const teng_status status = add_message(layout, "send", v->node->phase, &v->desc, NULL,
                                           (double)edge->bytes, tg_strbuf_str(&where));
    tg_strbuf_free(&where);
    return status;
}

/* Parts of a shared gradient go to the first stage that holds the parameter, and the sum back. */
static teng_status add_shared(const tg_pipe_cut *cut, const tg_pipe_shared *shared, int stage,
                              tg_parallel *layout)
{
    const teng_tensor *v = tg_graph_find(cut->whole, shared->name);
    int first = 0, others = 0;
    bool any = false;
    while (!shared->on[first])
        first++;
    for (int s = 0; s < cut->stages; s++) {
        any = any || shared->adds[s];
        others += s != first && shared->on[s];
    }
    if (!any || !v || !shared->on[stage] || (stage != first && !shared->adds[stage])) return TENG_OK;
    const double bytes = 4 * (double)tg_desc_numel(&v->desc) * (stage == first ? others : 1);
    return add_message(layout, "send", TG_UPDATE, &v->desc, shared->name, bytes,
                       stage == first ? "the other stages that hold it, its summed gradient"
                                      : "the first stage that holds it, a part of its gradient");
}

teng_status tg_pipe_cut_moves(const tg_pipe_cut *cut, int stage, tg_parallel *layout)
{
    size_t kept = 0;
    for (size_t i = 0; i < layout->entries.len; i++) {
        const tg_parallel_entry *e = &layout->entries.data[i];
        if (e->kind != TG_VALUE_PARAM || tg_pipe_cut_holds(cut, stage, e->name))
            layout->entries.data[kept++] = *e;
    }
    layout->entries.len = kept;
    kept = 0;
    for (size_t i = 0; i < layout->moves.len; i++) {
        const tg_parallel_move *m = &layout->moves.data[i];
        const int at = cut->at[m->node->out[0]->id];
        if (at >= 0 && cut->copied[at]) layout->moves.data[kept++] = *m;
    }
    layout->moves.len = kept;
    for (size_t i = 0; i < cut->edges.len; i++)
        if (cut->edges.data[i].from % cut->stages == stage)
            TG_TRY(add_edge(cut, &cut->edges.data[i], layout));
    for (size_t i = 0; i < cut->shared.len; i++)
        TG_TRY(add_shared(cut, &cut->shared.data[i], stage, layout));
    return TENG_OK;
}
