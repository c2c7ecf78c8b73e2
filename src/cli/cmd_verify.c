/* teng verify: a model against reference values. What is compared and how is in train/verify.c. */
#include "cli/cli_console.h"

#include "train/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 8 /* tensors that hold, unless all are asked for */

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *item_json(const tg_verify_item *i)
{
    json_t *o = json_pack("{s:s, s:b}", "name", i->name, "holds", i->holds);
    if (i->problem) {
        json_object_set_new(o, "problem", json_string(i->problem));
        return o;
    }
    json_object_set_new(o, "relative_error", real_or_null(i->error));
    json_object_set_new(o, "max_abs_error", real_or_null(i->max_abs));
    json_object_set_new(o, "worst_at", json_string(i->worst));
    json_object_set_new(o, "tolerance", real_or_null(i->tolerance));
    json_object_set_new(o, "tolerance_from", json_string(i->why));
    return o;
}

static const char *level_of(const tg_args_verify *args)
{
    return strcmp(args->precision, "fp32") == 0 ? "O0" : args->level;
}

static teng_precision precision_of(const tg_args_verify *args)
{
    teng_precision p = {.level = TENG_O0,
                        .dtype = strcmp(args->precision, "fp16") == 0 ? TENG_F16 : TENG_BF16};
    while (strcmp(teng_precision_level_name(p.level), level_of(args)) != 0)
        p.level++;
    return p;
}

static int put_json(const tg_args_verify *args, const tg_verify_report *r)
{
    json_t *items = json_array();
    for (size_t i = 0; i < r->items.len; i++)
        json_array_append_new(items, item_json(&r->items.data[i]));
    return tg_cli_put_json(&args->base,
                           json_pack("{s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:I, s:o}", "family",
                                     r->info.family, "parameters", (json_int_t)r->info.params, "mode",
                                     args->mode, "precision", args->precision, "level", level_of(args),
                                     "sequences", (json_int_t)r->rows, "tokens_per_sequence",
                                     (json_int_t)r->cols, "training_steps", (json_int_t)r->steps, "holds",
                                     r->failed == 0, "failed", (json_int_t)r->failed, "tensors", items));
}

static void print_item(const tg_verify_item *i)
{
    printf("%-4s  %-56s  ", i->holds ? "ok" : "OFF", i->name);
    if (i->problem)
        printf("%s\n", i->problem);
    else
        printf("%9.2e  %9.2e  %-14s  %7.0e\n", i->error, i->max_abs, i->worst, i->tolerance);
}

/* Where the tolerances come from, each reason once. */
static void print_reasons(const tg_verify_report *r)
{
    for (size_t i = 0; i < r->items.len; i++) {
        const tg_verify_item *item = &r->items.data[i];
        size_t first = 0;
        while (r->items.data[first].why != item->why)
            first++;
        if (first == i) printf("tolerance %.0e: %s\n", item->tolerance, item->why);
    }
}

static void print_report(const tg_args_verify *args, const tg_verify_report *r)
{
    printf("%s, %" PRId64 " parameters, %s mode, %s %s; %" PRId64 " sequences of %" PRId64 " tokens, %" PRId64
           " steps of training\n",
           r->info.family, r->info.params, args->mode, args->precision, level_of(args), r->rows, r->cols,
           r->steps);
    printf("%-4s  %-56s  %9s  %9s  %-14s  %7s\n", "", "tensor, the worst first", "relative", "largest", "at",
           "allowed");
    const size_t n = args->all || r->items.len < r->failed + SHOWN ? r->items.len : r->failed + SHOWN;
    for (size_t i = 0; i < n; i++)
        print_item(&r->items.data[i]);
    if (n < r->items.len) printf("      … and %zu more that hold\n", r->items.len - n);
    print_reasons(r);
    if (r->failed)
        printf("%zu of %zu tensors are off, the worst is %s\n", r->failed, r->items.len,
               r->items.data[0].name);
    else
        printf("all %zu tensors hold\n", r->items.len);
}

int tg_cmd_verify(const tg_args_verify *args)
{
    const tg_verify_options options = {.device = args->device,
                                       .threads = (int)args->threads,
                                       .pynative = strcmp(args->mode, "pynative") == 0,
                                       .precision = precision_of(args)};
    tg_verify_report report;
    tg_cli_log_warnings(&args->base);
    int status = TG_EXIT_OK;
    if (tg_verify(args->base.words[0], args->base.words[1], &options, &report) != TENG_OK)
        status = tg_cli_failed(&args->base);
    else if (args->json)
        status = put_json(args, &report);
    else
        print_report(args, &report);
    if (status == TG_EXIT_OK && report.failed) status = TG_EXIT_FAILURE;
    tg_verify_free(&report);
    return status;
}
