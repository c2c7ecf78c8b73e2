/*
 * A Transformer language model of 154 million parameters, trained on text: the program by which training
 * frameworks introduce themselves, whole. Causal attention with positions, labels shifted by one, batches
 * that are batches, held-back documents, checkpoints that a second start goes on from. Sizes and settings can
 * be given on the command line:
 *
 *   article text=FILE [tokenizer=tokenizer.json] [batch_size=16 seq_len=1024 hidden_size=1024 …]
 *
 * configs/article.yaml is the same run for the program `teng`: with equal sizes and text its losses are
 * equal. Shapes: x_btc [batch, tokens, hidden], q_bthd [batch, tokens, heads, hidden / heads].
 */
#include <teng/teng.h>

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ===================== 1. settings ===================== */
typedef struct settings {
    int64_t batch_size, micro_batches, seq_len, vocab_size, hidden_size, num_layers, num_heads, epochs, steps,
        eval_every, save_every, keep_max, seed, threads;
    double lr;
    const char *mode, *text, *separator, *tokenizer, *ckpt, *out;
} settings;

static const settings standard = {
    .batch_size = 16,
    .micro_batches = 4, /* pieces of a batch: less memory, the same step */
    .seq_len = 1024,
    .vocab_size = 50257,
    .hidden_size = 1024,
    .num_layers = 8,
    .num_heads = 16,
    .epochs = 3,
    .steps = 0, /* more than 0: instead of epochs */
    .eval_every = 100,
    .save_every = 100,
    .keep_max = 5,
    .seed = 1,
    .lr = 2e-5,
    .mode = "graph",
    .separator = "\n\n", /* a paragraph is a document */
    .ckpt = "ckpt",
};

#define WHOLE(name)                                                                                          \
    {                                                                                                        \
#name, 'i', offsetof(settings, name)                                                                 \
    }
#define TEXT(name)                                                                                           \
    {                                                                                                        \
#name, 's', offsetof(settings, name)                                                                 \
    }
static const struct {
    const char *name;
    char type;
    size_t offset;
} keys[] = {
    WHOLE(batch_size),
    WHOLE(micro_batches),
    WHOLE(seq_len),
    WHOLE(vocab_size),
    WHOLE(hidden_size),
    WHOLE(num_layers),
    WHOLE(num_heads),
    WHOLE(epochs),
    WHOLE(steps),
    WHOLE(eval_every),
    WHOLE(save_every),
    WHOLE(keep_max),
    WHOLE(seed),
    WHOLE(threads),
    TEXT(mode),
    TEXT(text),
    TEXT(separator),
    TEXT(tokenizer),
    TEXT(ckpt),
    TEXT(out),
    {"lr", 'r', offsetof(settings, lr)},
};

/* One "key=value"; false when it is none. */
static bool set(settings *s, const char *word)
{
    const char *value = strchr(word, '=');
    for (size_t i = 0; value && i < sizeof keys / sizeof *keys; i++) {
        if (strlen(keys[i].name) != (size_t)(value - word) ||
            strncmp(word, keys[i].name, (size_t)(value - word)))
            continue;
        void *field = (char *)s + keys[i].offset;
        char *end = NULL;
        errno = 0;
        if (keys[i].type == 's')
            *(const char **)field = value + 1;
        else if (keys[i].type == 'r')
            *(double *)field = strtod(value + 1, &end);
        else
            *(int64_t *)field = strtoll(value + 1, &end, 10);
        return errno == 0 && (!end || (end != value + 1 && *end == '\0'));
    }
    return false;
}

/* ===================== 2. the model ===================== */
#define INIT_STD 0.02
#define NORM_EPS 1e-5

typedef struct layer {
    teng_cell *ln_1, *c_attn, *attn_proj, *ln_2, *c_fc, *mlp_proj;
    int64_t heads, hidden;
} layer;

static teng_tensor *attend(const layer *l, teng_tensor *x_btc)
{
    const int64_t c = l->hidden, h = l->heads, *dims = teng_tensor_desc(x_btc)->dims;
    teng_tensor *qkv[3] = {0};
    teng_split(teng_call(l->c_attn, x_btc), 2, TENG_DIMS(c, c, c), qkv);
    for (int i = 0; i < 3; i++)
        qkv[i] = teng_reshape(qkv[i], TENG_DIMS(dims[0], dims[1], h, c / h));
    const teng_attention_options options = {.causal = 1}; /* a token never sees those after it */
    teng_tensor *y_bthd = teng_attention(qkv[0], qkv[1], qkv[2], &options);
    return teng_call(l->attn_proj, teng_reshape(y_bthd, TENG_DIMS(dims[0], dims[1], c)));
}

static teng_tensor *layer_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const layer *l = teng_cell_data(self);
    (void)n_in;
    teng_tensor *x_btc = teng_add(in[0], attend(l, teng_call(l->ln_1, in[0])));
    teng_tensor *h = teng_gelu_tanh(teng_call(l->c_fc, teng_call(l->ln_2, x_btc)));
    return teng_add(x_btc, teng_call(l->mlp_proj, h));
}

static teng_cell *layer_create(const settings *s)
{
    teng_cell *cell = teng_cell_create("transformer_layer", sizeof(layer), layer_forward);
    if (!cell) return NULL;
    layer *l = teng_cell_data(cell);
    const int64_t c = s->hidden_size;
    const double proj_std =
        INIT_STD / sqrt(2.0 * (double)s->num_layers); /* what adds to the residual stream */
    l->heads = s->num_heads;
    l->hidden = c;
    l->ln_1 = teng_cell_add(cell, "ln_1", teng_nn_layer_norm(c, NORM_EPS, true));
    l->c_attn = teng_cell_add(cell, "attn.c_attn", teng_nn_conv1d(c, 3 * c, true, INIT_STD));
    l->attn_proj = teng_cell_add(cell, "attn.c_proj", teng_nn_conv1d(c, c, true, proj_std));
    l->ln_2 = teng_cell_add(cell, "ln_2", teng_nn_layer_norm(c, NORM_EPS, true));
    l->c_fc = teng_cell_add(cell, "mlp.c_fc", teng_nn_conv1d(c, 4 * c, true, INIT_STD));
    l->mlp_proj = teng_cell_add(cell, "mlp.c_proj", teng_nn_conv1d(4 * c, c, true, proj_std));
    return cell;
}

typedef struct transformer {
    teng_cell *embedding, *positions, *norm;
    int64_t num_layers;
    teng_cell *layers[];
} transformer;

/* (tokens) → logits; (tokens, labels) → loss. */
static teng_tensor *transformer_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const transformer *m = teng_cell_data(self);
    teng_tensor *x_btc = teng_call(m->embedding, in[0]);
    x_btc = teng_add_positions(x_btc, teng_value(teng_nn_weight(m->positions)));
    for (int64_t i = 0; i < m->num_layers; i++)
        x_btc = teng_call(m->layers[i], x_btc);
    x_btc = teng_call(m->norm, x_btc);
    teng_tensor *fc = teng_value(teng_nn_weight(m->embedding)); /* the head is the embedding's other use */
    return n_in == 2 ? teng_linear_cross_entropy(x_btc, fc, in[1], TENG_IGNORE_INDEX)
                     : teng_linear(x_btc, fc, NULL, false);
}

static teng_cell *transformer_create(const settings *s)
{
    const size_t size = sizeof(transformer) + (size_t)s->num_layers * sizeof(teng_cell *);
    teng_cell *cell = teng_cell_create("transformer", size, transformer_forward);
    if (!cell) return NULL;
    transformer *m = teng_cell_data(cell);
    const int64_t c = s->hidden_size;
    m->num_layers = s->num_layers;
    m->embedding = teng_cell_add(cell, "transformer.wte", teng_nn_embedding(s->vocab_size, c, INIT_STD));
    m->positions = teng_cell_add(cell, "transformer.wpe", teng_nn_embedding(s->seq_len, c, INIT_STD));
    for (int64_t i = 0; i < s->num_layers; i++) {
        char name[40];
        snprintf(name, sizeof name, "transformer.h.%lld", (long long)i);
        m->layers[i] = teng_cell_add(cell, name, layer_create(s));
    }
    m->norm = teng_cell_add(cell, "transformer.ln_f", teng_nn_layer_norm(c, NORM_EPS, true));
    return cell;
}

/* ===================== 3. data ===================== */
static teng_dataset *open_data(const settings *s, teng_part part)
{
    teng_token_options o = teng_token_options_default();
    o.files = &s->text;
    o.n_files = 1;
    o.tokenizer = s->tokenizer;
    o.vocab_size = s->vocab_size;
    o.seq_len = s->seq_len;
    o.batch_size = part == TENG_PART_VAL ? s->batch_size / s->micro_batches : s->batch_size;
    o.seed = (uint64_t)s->seed;
    o.val_fraction = 0.1; /* of the documents */
    o.part = part;
    o.separator = s->separator;
    o.once = part == TENG_PART_VAL;
    return teng_dataset_tokens(&o);
}

/* ===================== 4. a callback of our own ===================== */
typedef struct evaluation {
    teng_dataset *data;
    int64_t every;
} evaluation;

static teng_status evaluate(teng_callback *self, teng_train_info *info)
{
    const evaluation *e = self->user;
    if (info->step % e->every != 0 && info->step != info->steps) return TENG_OK;
    teng_eval_info result;
    const teng_status status = teng_model_eval(info->model, e->data, 4, &result);
    if (status == TENG_OK)
        printf("step %lld  held-back documents: loss %.6f over %lld tokens\n", (long long)info->step,
               result.loss, (long long)result.tokens);
    return status;
}

/* ===================== 5. training ===================== */
static teng_model *create_model(const settings *s, teng_cell *net, int64_t steps)
{
    teng_model_options options = teng_model_options_default(); /* AdamW, decay 0.1 on weights, clip 1 */
    options.mode = strcmp(s->mode, "pynative") == 0 ? TENG_PYNATIVE : TENG_GRAPH;
    options.seed = (uint64_t)s->seed;
    options.threads = (int)s->threads;
    options.micro_batches = s->micro_batches;
    options.schedule.lr = s->lr;
    options.schedule.warmup_steps = llround(0.05 * (double)steps);
    return teng_model_create(net, &options);
}

static teng_status train(const settings *s, teng_model *model, teng_dataset *data, teng_dataset *val,
                         int64_t steps)
{
    teng_status status = teng_model_resume(model, data, s->ckpt);
    if (status != TENG_OK) return status;
    if (teng_model_step(model) > 0) printf("going on after step %lld\n", (long long)teng_model_step(model));
    evaluation held_back = {val, s->eval_every > 0 ? s->eval_every : steps};
    teng_callback callbacks[] = {teng_loss_monitor(10, stdout),
                                 teng_time_monitor(10, stdout),
                                 teng_checkpoint(s->ckpt, s->save_every, (int)s->keep_max),
                                 {.on_step = evaluate, .user = &held_back}};
    status = teng_model_train(model, data, steps, callbacks, sizeof callbacks / sizeof *callbacks);
    return status == TENG_OK && s->out ? teng_model_save(model, s->out, data) : status;
}

static teng_status run(const settings *s)
{
    if (s->num_heads < 1 || s->hidden_size % s->num_heads || s->micro_batches < 1 || s->num_layers < 1)
        return teng_fail(TENG_INVALID,
                         "num_heads must divide hidden_size; micro_batches and num_layers are 1 or more");
    teng_cell *net = transformer_create(s);
    teng_dataset *data = open_data(s, TENG_PART_TRAIN), *val = data ? open_data(s, TENG_PART_VAL) : NULL;
    const int64_t steps = s->steps > 0 || !data ? s->steps : s->epochs * teng_dataset_length(data);
    teng_model *model = net && val ? create_model(s, net, steps) : NULL;
    if (model)
        printf("%lld parameters, %lld batches an epoch, %lld steps\n", (long long)teng_cell_numel(net),
               (long long)teng_dataset_length(data), (long long)steps);
    const teng_status status = model ? train(s, model, data, val, steps) : teng_error_status();
    teng_model_destroy(&model);
    teng_dataset_destroy(&val);
    teng_dataset_destroy(&data);
    teng_cell_destroy(&net);
    return status;
}

int main(int argc, char **argv)
{
    settings s = standard;
    for (int i = 1; i < argc; i++) {
        if (set(&s, argv[i])) continue;
        fprintf(stderr, "article: %s is not key=value with one of these keys:", argv[i]);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            fprintf(stderr, " %s", keys[k].name);
        fprintf(stderr, "\n");
        return 2;
    }
    if (!s.text) {
        fprintf(stderr, "article: text=FILE names what to train on\n");
        return 2;
    }
    if (run(&s) != TENG_OK) {
        fprintf(stderr, "article: %s\n", teng_error());
        return 1;
    }
    return 0;
}
