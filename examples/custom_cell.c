/*
 * A cell of one's own, trained in both modes: a gated block learns in which of three rings a point lies.
 * GRAPH and PYNATIVE run the same operators, so that every loss is equal to the last bit.
 */
#include <teng/teng.h>

#include <math.h>
#include <string.h>

enum { ROWS = 32, STEPS = 200, HIDDEN = 24, RINGS = 3 };
typedef struct gated {
    teng_cell *gate, *up, *down;
} gated;

static teng_tensor *forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const gated *g = teng_cell_data(self);
    teng_tensor *h = teng_swiglu(teng_call(g->gate, in[0]), teng_call(g->up, in[0]));
    teng_tensor *logits = teng_call(g->down, h);
    return n_in == 2 ? teng_cross_entropy(logits, in[1], TENG_IGNORE_INDEX) : logits;
}

static teng_status fill(void *user, teng_batch *batch) /* a function of batch->index alone */
{
    float *point = batch->data[0];
    int32_t *label = batch->data[1];
    (void)user;
    for (int64_t i = 0; i < ROWS; i++) {
        const double n = (double)(batch->index * ROWS + i), radius = fmod(n * 0.6180339887, 1) * RINGS;
        *point++ = (float)(radius * cos(n));
        *point++ = (float)(radius * sin(n));
        *label++ = (int32_t)radius;
    }
    return TENG_OK;
}

static teng_status keep_loss(teng_callback *self, teng_train_info *info)
{
    ((double *)self->user)[info->step - 1] = info->loss;
    return TENG_OK;
}

static teng_status train(teng_mode mode, double losses[STEPS])
{
    teng_cell *cell = teng_cell_create("gated", sizeof(gated), forward);
    gated *g = teng_cell_data(cell);
    g->gate = teng_cell_add(cell, "gate", teng_nn_linear(2, HIDDEN, true, 0.7));
    g->up = teng_cell_add(cell, "up", teng_nn_linear(2, HIDDEN, true, 0.7));
    g->down = teng_cell_add(cell, "down", teng_nn_linear(HIDDEN, RINGS, true, 0.2));
    const teng_input inputs[] = {{"points", {TENG_F32, 2, {ROWS, 2}}}, {"labels", {TENG_I32, 1, {ROWS}}}};
    teng_dataset *data = teng_dataset_create(inputs, 2, 50, fill, NULL);
    teng_model_options options = teng_model_options_default();
    options.mode = mode;
    options.schedule.lr = 0.02;
    teng_model *model = teng_model_create(cell, &options);
    teng_callback callbacks[] = {teng_loss_monitor(50, stdout), {.on_step = keep_loss, .user = losses}};
    puts(mode == TENG_GRAPH ? "GRAPH" : "PYNATIVE");
    const teng_status status = teng_model_train(model, data, STEPS, callbacks, 2);
    teng_model_destroy(&model);
    teng_dataset_destroy(&data);
    teng_cell_destroy(&cell);
    return status;
}

int main(void)
{
    static double graph[STEPS], pynative[STEPS];
    if (train(TENG_GRAPH, graph) != TENG_OK || train(TENG_PYNATIVE, pynative) != TENG_OK)
        return fprintf(stderr, "%s\n", teng_error()), 1;
    const bool equal = memcmp(graph, pynative, sizeof graph) == 0;
    printf("%d losses, %s\n", STEPS, equal ? "equal in both modes to the last bit" : "NOT equal");
    return equal && graph[STEPS - 1] < 0.5 * graph[0] ? 0 : 1;
}
