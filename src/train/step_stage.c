/*
 * What a stage of a pipeline runs, made ready: the graph of a micro-batch is built and placed as without a
 * pipeline, cut, and this stage's pieces are planned, each with a block for every micro-batch that the
 * schedule holds. Running: step_pipeline.c.
 */
#include "base/fail.h"
#include "tensor/desc.h"
#include "train/step_pipeline.h"

#include <limits.h>
#include <string.h>

teng_status tg_step_pipe_create(tg_step *s)
{
    const tg_step_options *o = &s->options;
    if (!o->parallel || o->parallel->mesh.size[TG_AXIS_PIPELINE] < 2) return TENG_OK;
    int coord[TG_AXES];
    if (o->pynative)
        return tg_fail(TENG_UNSUPPORTED,
                       "parallel.pipeline=%d needs a graph that can be cut: set "
                       "context.mode=graph (pynative knows data ranks alone)",
                       o->parallel->mesh.size[TG_AXIS_PIPELINE]);
    if (o->recompute == TG_CFG_RECOMPUTE_AUTO)
        return tg_fail(TENG_UNSUPPORTED,
                       "memory.recompute=auto searches in the plan of one rank and does not "
                       "see a pipeline: set memory.recompute=selective or full");
    s->pipe = tg_calloc(1, sizeof *s->pipe);
    if (!s->pipe) return TENG_MEMORY;
    tg_mesh_coords(&o->parallel->mesh, o->parallel->rank, coord);
    *s->pipe = (tg_step_pipe){.kind = o->pipe_kind,
                              .stages = o->parallel->mesh.size[TG_AXIS_PIPELINE],
                              .stage = coord[TG_AXIS_PIPELINE],
                              .chunks = o->pipe_chunks > 0 ? o->pipe_chunks : 1};
    tg_step_pipe *p = s->pipe;
    TG_TRY(tg_pipe_schedule_make(p->kind, p->stages, (int)o->micro_batches, p->chunks, &p->schedule));
    TG_TRY(tg_pipe_check(p->schedule));
    for (int c = 0; c < p->chunks; c++) {
        const int held = tg_pipe_held(p->schedule, p->stage, c);
        if (held > p->most) p->most = held;
    }
    p->slots = tg_calloc((size_t)p->chunks * (size_t)p->most, sizeof(tg_exec_block *));
    if (!p->slots) return TENG_MEMORY;
    for (int i = 0; i < p->chunks * p->most; i++)
        if (!(p->slots[i] = tg_exec_block_create(tg_store_device(s->store)))) return TENG_MEMORY;
    return TENG_OK;
}

static void destroy_piece(tg_pipe_piece *piece)
{
    for (int i = 0; piece->exec && i < piece->slots; i++)
        tg_exec_destroy(&piece->exec[i]);
    tg_plan_destroy(&piece->plan);
    tg_free(piece->exec);
    tg_free(piece->in_name);
    tg_free(piece->in_phase);
}

static void destroy_program(tg_step_pipe *p, tg_pipe_program *program)
{
    for (int c = 0; program->pieces && c < p->chunks; c++)
        destroy_piece(&program->pieces[c]);
    tg_exec_destroy(&program->update);
    tg_plan_destroy(&program->update_plan);
    tg_pipe_cut_destroy(&program->cut);
    tg_parallel_destroy(&program->parallel);
    tg_free(program->pieces);
    tg_free(program->in);
    tg_free(program);
}

void tg_step_pipe_destroy(tg_step *s)
{
    tg_step_pipe *p = s->pipe;
    if (!p) return;
    for (size_t i = 0; i < p->programs.len; i++)
        destroy_program(p, p->programs.data[i]);
    for (int i = 0; p->slots && i < p->chunks * p->most; i++)
        tg_exec_block_destroy(&p->slots[i]);
    tg_vec_free(&p->programs);
    tg_free(p->slots);
    tg_pipe_schedule_destroy(&p->schedule);
    tg_pipe_layers_destroy(&p->layers);
    tg_free(p);
    s->pipe = NULL;
}

/* With the same rates on every rank: what this machine measures would cut elsewhere on another. */
teng_status tg_step_pipe_deal(tg_step *s, const tg_graph *whole)
{
    if (s->pipe->layers) return TENG_OK;
    return tg_pipe_layers_make(whole, s->pipe->stages * s->pipe->chunks, 0, 0, &s->pipe->layers);
}

/* The parameter that an entry is or belongs to: "adamw.m.model.norm.weight" ends in its name. */
static const char *param_of(const tg_graph *g, const tg_parallel_entry *e)
{
    for (const char *at = e->name; e->kind == TG_VALUE_STATE && (at = strchr(at, '.'));) {
        const teng_tensor *v = tg_graph_find(g, ++at);
        if (v && v->kind == TG_VALUE_PARAM) return at;
    }
    return e->name;
}

teng_status tg_step_pipe_keep_own(tg_step *s, tg_graph *g, tg_parallel *layout)
{
    tg_pipe_cut *cut;
    size_t kept = 0;
    TG_TRY(tg_pipe_cut_make(g, s->pipe->layers, s->pipe->stages, &cut));
    for (size_t i = 0; i < layout->entries.len; i++) {
        const tg_parallel_entry e = layout->entries.data[i];
        if (tg_pipe_cut_holds(cut, s->pipe->stage, param_of(cut->whole, &e)))
            layout->entries.data[kept++] = e;
    }
    layout->entries.len = kept;
    tg_pipe_cut_destroy(&cut);
    return TENG_OK;
}

/* ---- plans ---- */
/* Inputs of the host, not of other stages. */
static teng_status find_inputs(tg_pipe_piece *piece)
{
    const tg_graph *g = piece->plan->graph;
    piece->in_name = tg_calloc(g->values.len + 1, sizeof *piece->in_name);
    piece->in_phase = tg_calloc(g->values.len + 1, sizeof *piece->in_phase);
    if (!piece->in_name || !piece->in_phase) return TENG_MEMORY;
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        if (v->kind != TG_VALUE_INPUT || strncmp(v->name, "pipe.", 5) == 0) continue;
        piece->in_name[piece->n_in] = v->name;
        piece->in_phase[piece->n_in] = TG_UPDATE;
        for (size_t k = g->nodes.len; k-- > 0;)
            for (int j = 0; j < g->nodes.data[k]->n_in; j++)
                if (g->nodes.data[k]->in[j] == v) piece->in_phase[piece->n_in] = g->nodes.data[k]->phase;
        piece->n_in++;
    }
    return TENG_OK;
}

/* The graph is taken over. slots 0: the update, which alone may have something on disk. */
static teng_status plan_part(tg_step *s, tg_graph *g, int slots, tg_plan **out)
{
    tg_plan_options options = tg_step_plan_options(s);
    options.slots = slots;
    if (slots) options.offload = 0;
    const teng_status status = tg_parallel_fuse(g, s->options.parallel->fusion);
    if (status == TENG_OK) return tg_plan_create(g, &options, out);
    tg_graph_destroy(&g);
    return status;
}

static teng_status plan_piece(tg_step *s, tg_pipe_program *program, int chunk)
{
    const tg_step_pipe *p = s->pipe;
    tg_pipe_piece *piece = &program->pieces[chunk];
    tg_graph *g;
    piece->piece = chunk * p->stages + p->stage;
    piece->slots = program->kind == TG_STEP_TRAIN ? tg_pipe_held(p->schedule, p->stage, chunk) : 1;
    const bool split = p->kind == TG_PIPE_ZERO_BUBBLE && program->kind == TG_STEP_TRAIN;
    TG_TRY(tg_pipe_piece_graph(program->cut, piece->piece, split, &g));
    TG_TRY(plan_part(s, g, piece->slots, &piece->plan));
    return find_inputs(piece);
}

size_t tg_step_pipe_bytes(const tg_step *s, const tg_pipe_program *program)
{
    size_t block = 0, slots = 0;
    for (int c = 0; c < s->pipe->chunks; c++) {
        const tg_plan_memory *m = &program->pieces[c].plan->memory;
        if (m->block > block) block = m->block;
        slots += m->slot * (size_t)program->pieces[c].slots;
    }
    if (!program->update_plan) return block + slots;
    const tg_plan_memory *m = &program->update_plan->memory;
    return (m->block > block ? m->block : block) + slots + m->params + m->states;
}

static teng_status check_budget(const tg_step *s, const tg_pipe_program *program)
{
    const size_t need = tg_step_pipe_bytes(s, program), have = s->options.memory_budget;
    char a[32], b[32];
    if (!have || need <= have) return TENG_OK;
    return tg_fail(
        TENG_MEMORY,
        "memory.budget: stage %d of the pipeline needs %s, the budget is %s; smaller micro-batches, "
        "parallel.schedule=1f1b or memory.recompute=selective need less",
        s->pipe->stage, tg_format_bytes(a, (double)need), tg_format_bytes(b, (double)have));
}

static teng_status plan_program(tg_step *s, const tg_step_feed *shapes, tg_pipe_program *program)
{
    tg_recompute_try all = {.moves = INT_MAX};
    tg_graph *g = NULL;
    if (!s->pipe->layers) { /* an evaluation before the first training step */
        const tg_parallel *layout;
        TG_TRY(tg_step_layout(s, shapes, &layout));
    }
    TG_TRY(tg_step_make_graph(s, shapes, program->kind, &all, &g));
    program->parallel = s->parallel;
    s->parallel = NULL;
    TG_TRY(tg_pipe_cut_make(g, s->pipe->layers, s->pipe->stages, &program->cut));
    for (int c = 0; c < s->pipe->chunks; c++)
        TG_TRY(plan_piece(s, program, c));
    if (program->kind == TG_STEP_TRAIN) {
        TG_TRY(tg_pipe_update_graph(program->cut, s->pipe->stage, &g));
        TG_TRY(plan_part(s, g, 0, &program->update_plan));
    }
    TG_TRY(tg_pipe_cut_moves(program->cut, s->pipe->stage, program->parallel));
    return program->kind != TG_STEP_TRAIN ? TENG_OK : check_budget(s, program);
}

static teng_status bind_program(tg_step *s, tg_pipe_program *program)
{
    tg_step_pipe *p = s->pipe;
    for (int c = 0; c < p->chunks; c++) {
        tg_pipe_piece *piece = &program->pieces[c];
        if (piece->exec) continue;
        piece->exec = tg_calloc((size_t)piece->slots, sizeof(tg_exec *));
        if (!piece->exec) return TENG_MEMORY;
        for (int i = 0; i < piece->slots; i++)
            TG_TRY(tg_exec_create_slot(piece->plan, s->store, s->block, p->slots[c * p->most + i],
                                       &piece->exec[i]));
    }
    if (!program->update_plan || program->update) return TENG_OK;
    return tg_exec_create(program->update_plan, s->store, s->block, &program->update);
}

teng_status tg_step_pipe_program(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, bool bind,
                                 tg_pipe_program **out)
{
    tg_step_pipe *p = s->pipe;
    *out = NULL;
    for (size_t i = 0; i < p->programs.len && !*out; i++) {
        tg_pipe_program *known = p->programs.data[i];
        if (known->kind == kind && tg_step_same_shapes(known->in, known->n_in, shapes)) *out = known;
    }
    if (!*out) {
        tg_pipe_program *fresh = tg_calloc(1, sizeof *fresh);
        if (!fresh) return TENG_MEMORY;
        *fresh = (tg_pipe_program){.kind = kind,
                                   .n_in = shapes->n_in,
                                   .in = tg_alloc(sizeof(teng_desc) * (size_t)shapes->n_in),
                                   .pieces = tg_calloc((size_t)p->chunks, sizeof(tg_pipe_piece))};
        teng_status status = fresh->in && fresh->pieces ? TENG_OK : TENG_MEMORY;
        if (status == TENG_OK) {
            memcpy(fresh->in, shapes->in_desc, sizeof(teng_desc) * (size_t)shapes->n_in);
            status = plan_program(s, shapes, fresh);
        }
        if (status != TENG_OK || !tg_vec_push(&p->programs, fresh)) {
            destroy_program(p, fresh);
            return status != TENG_OK ? status : TENG_MEMORY;
        }
        *out = fresh;
    }
    return bind ? bind_program(s, *out) : TENG_OK;
}

/* ---- for people ---- */
static teng_status simulate(tg_step *s, const tg_pipe_program *program, tg_pipe_times *times)
{
    return tg_pipe_simulate(s->pipe->schedule, program->cut->costs, 0, times);
}

teng_status tg_step_pipe_svg(tg_step *s, const tg_step_feed *shapes, tg_strbuf *out)
{
    tg_pipe_program *program;
    tg_pipe_times times;
    TG_TRY(tg_step_pipe_program(s, shapes, TG_STEP_TRAIN, false, &program));
    TG_TRY(simulate(s, program, &times));
    const teng_status status = tg_pipe_svg(s->pipe->schedule, &times, true, out);
    tg_pipe_times_free(&times);
    return status;
}

teng_status tg_step_pipe_print(tg_step *s, const tg_step_feed *shapes, tg_strbuf *out)
{
    const tg_step_pipe *p = s->pipe;
    tg_pipe_program *program;
    tg_pipe_times times;
    char text[32];
    TG_TRY(tg_step_pipe_program(s, shapes, TG_STEP_TRAIN, false, &program));
    TG_TRY(simulate(s, program, &times));
    tg_strbuf_printf(out, "pipeline              %s, %d stages, %d micro-batches", tg_pipe_kind_name(p->kind),
                     p->stages, p->schedule->micro_batches);
    if (p->chunks > 1) tg_strbuf_printf(out, ", %d pieces a stage", p->chunks);
    tg_strbuf_printf(out, "; bubble %.1f %% of the forecast step\n", 100 * times.bubble);
    tg_pipe_times_free(&times);
    tg_pipe_cut_print(program->cut, out);
    for (int c = 0; c < p->chunks; c++) {
        const tg_pipe_piece *piece = &program->pieces[c];
        tg_strbuf_printf(out, "piece %d here          %zu steps; %d micro-batches held at most, %s each",
                         piece->piece, piece->plan->steps.len, piece->slots,
                         tg_format_bytes(text, (double)piece->plan->memory.slot));
        tg_strbuf_printf(out, ", block of a pass %s\n",
                         tg_format_bytes(text, (double)piece->plan->memory.block));
    }
    tg_strbuf_printf(out, "stage %d               %s in all\n", p->stage,
                     tg_format_bytes(text, (double)tg_step_pipe_bytes(s, program)));
    return TENG_OK;
}
