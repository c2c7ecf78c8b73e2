/* teng model info, convert and diff. What they do is in train/model_folder.c. */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "base/log.h"
#include "train/model_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- info ---- */
static json_t *info_json(const tg_folder_info *i)
{
    json_t *types = json_object();
    for (int t = 0; t < TENG_DTYPE_COUNT; t++)
        if (i->elements[t])
            json_object_set_new(types, teng_dtype_name((teng_dtype)t), json_integer(i->elements[t]));
    json_t *memory = json_object();
    for (int level = TENG_O0; level <= TENG_O3; level++)
        json_object_set_new(memory, teng_precision_level_name((teng_precision_level)level),
                            json_integer((json_int_t)i->train_bytes[level]));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:o}", "family", i->lm.family,
                     "parameters", (json_int_t)i->lm.params, "layers", (json_int_t)i->lm.num_layers,
                     "hidden_size", (json_int_t)i->lm.hidden_size, "vocab_size", (json_int_t)i->lm.vocab_size,
                     "max_positions", (json_int_t)i->lm.max_positions, "tensors", (json_int_t)i->tensors,
                     "bytes", (json_int_t)i->bytes, "elements", types, "train_flops_per_token",
                     i->flops_per_token, "train_bytes", memory);
}

static void print_info(const tg_folder_info *i)
{
    char size[32];
    printf("family      %s, %" PRId64 " parameters\n", i->lm.family, i->lm.params);
    printf("shape       %" PRId64 " layers of %" PRId64 ", %" PRId64 " heads (%" PRId64
           " of keys) of %" PRId64 ", vocabulary %" PRId64 ", %" PRId64 " positions\n",
           i->lm.num_layers, i->lm.hidden_size, i->lm.num_heads, i->lm.num_kv_heads, i->lm.head_dim,
           i->lm.vocab_size, i->lm.max_positions);
    if (i->lm.num_experts)
        printf("experts     %" PRId64 ", of which a token sees %" PRId64 "\n", i->lm.num_experts,
               i->lm.experts_per_token);
    printf("files       %zu tensors, %s:", i->tensors, tg_format_bytes(size, (double)i->bytes));
    for (int t = 0; t < TENG_DTYPE_COUNT; t++)
        if (i->elements[t])
            printf(" %" PRId64 " values of %s", i->elements[t], teng_dtype_name((teng_dtype)t));
    printf("\ntraining    %.3g FLOPs a token at %" PRId64 " tokens\n", i->flops_per_token,
           i->lm.max_positions);
    printf("memory      %s in O0: 16 bytes a parameter for weights, gradients and AdamW, all f32\n",
           tg_format_bytes(size, (double)i->train_bytes[TENG_O0]));
    printf("            %s in O1 and O2, bf16 or fp16: 2 more for each weight of a matrix product\n",
           tg_format_bytes(size, (double)i->train_bytes[TENG_O2]));
    printf("            %s in O3: 2 more for biases and norms too\n",
           tg_format_bytes(size, (double)i->train_bytes[TENG_O3]));
    printf("            activations come on top; `teng plan` counts them\n");
}

int tg_cmd_model_info(const tg_args_model_info *args)
{
    tg_folder_info info;
    tg_cli_log_warnings(&args->base);
    if (tg_folder_get_info(args->base.words[0], &info) != TENG_OK) return tg_cli_failed(&args->base);
    if (args->json) return tg_cli_put_json(&args->base, info_json(&info));
    print_info(&info);
    return TG_EXIT_OK;
}

/* ---- convert ---- */
int tg_cmd_model_convert(const tg_args_model_convert *args)
{
    const bool keep = strcmp(args->dtype, "keep") == 0;
    const teng_dtype dtype = keep ? TENG_DTYPE_COUNT : teng_dtype_parse(args->dtype);
    tg_cli_log_warnings(&args->base);
    if (tg_folder_convert(args->base.words[0], args->base.words[1], dtype, args->shard_size) != TENG_OK)
        return tg_cli_failed(&args->base);
    printf("%s\n", args->base.words[1]);
    return TG_EXIT_OK;
}

/* ---- diff ---- */
static json_t *diffs_json(const tg_folder_diffs *diffs, size_t differ)
{
    json_t *list = json_array();
    for (size_t i = 0; i < diffs->len; i++) {
        const tg_folder_diff *d = &diffs->data[i];
        if (d->problem) {
            json_array_append_new(list, json_pack("{s:s, s:s}", "name", d->name, "problem", d->problem));
            continue;
        }
        const bool finite = isfinite(d->max_abs) && isfinite(d->rel_l2);
        json_array_append_new(list,
                              json_pack("{s:s, s:b, s:o, s:o}", "name", d->name, "same_bits", d->same_bits,
                                        "max_abs_error", finite ? json_real(d->max_abs) : json_null(),
                                        "relative_error", finite ? json_real(d->rel_l2) : json_null()));
    }
    return json_pack("{s:I, s:o}", "differ", (json_int_t)differ, "tensors", list);
}

static void print_diffs(const tg_folder_diffs *diffs, size_t differ)
{
    if (differ) printf("%-60s  %9s  %9s\n", "tensor", "relative", "largest");
    for (size_t i = 0; i < differ; i++) {
        const tg_folder_diff *d = &diffs->data[i];
        if (d->problem)
            printf("%-60s  %s\n", d->name, d->problem);
        else
            printf("%-60s  %9.2e  %9.2e\n", d->name, d->rel_l2, d->max_abs);
    }
    printf("%zu of %zu tensors differ\n", differ, diffs->len);
}

int tg_cmd_model_diff(const tg_args_model_diff *args)
{
    tg_folder_diffs diffs;
    int status = TG_EXIT_OK;
    size_t differ = 0;
    tg_cli_log_warnings(&args->base);
    const teng_status made = tg_folder_compare(args->base.words[0], args->base.words[1], &diffs);
    while (differ < diffs.len && (diffs.data[differ].problem || !diffs.data[differ].same_bits))
        differ++;
    if (made != TENG_OK)
        status = tg_cli_failed(&args->base);
    else if (args->json)
        status = tg_cli_put_json(&args->base, diffs_json(&diffs, differ));
    else
        print_diffs(&diffs, differ);
    if (status == TG_EXIT_OK && differ) status = TG_EXIT_FAILURE;
    tg_folder_diffs_free(&diffs);
    return status;
}
