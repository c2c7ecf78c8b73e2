/* teng plan: what a run would compute and need, as text, DOT or JSON. */
#include "cli/cli_config.h"
#include "cli/cli_console.h"

#include "base/fail.h"
#include "base/file.h"
#include "train/trainer.h"

#include <stdio.h>

/* Writes a picture where one is asked for, and says so where no listing is. */
static teng_status draw(const tg_config *cfg, int64_t rank, const char *what, const char *path,
                        const char *said, tg_strbuf *out)
{
    tg_strbuf picture = {0};
    if (!path) return TENG_OK;
    teng_status status = tg_run_plan_text(cfg, rank, what, &picture);
    if (status == TENG_OK) status = tg_file_write(path, tg_strbuf_str(&picture), picture.len);
    if (status == TENG_OK && said) tg_strbuf_printf(out, "%s: %s\n", path, said);
    tg_strbuf_free(&picture);
    return status;
}

int tg_cmd_plan(const tg_args_plan *args)
{
    const struct {
        bool asked;
        const char *what;
    } listings[] = {
        {args->json, "json"},
        {args->dot, "dot"},
        {args->graph, "graph"},
        {args->steps, "plan"},
        {args->memory, "memory"},
        {args->casts, "casts"},
        {args->redistributions, "redistributions"},
    };
    enum { N = sizeof listings / sizeof *listings };
    int asked = 0;
    for (int i = 0; i < N; i++)
        asked += listings[i].asked;
    if ((args->json || args->dot) && asked > 1) {
        tg_fail(TENG_INVALID, "--%s stands alone: a program reads it", args->json ? "json" : "dot");
        return tg_cli_misused(args->base.command, NULL);
    }
    tg_cli_log_warnings(&args->base);
    tg_config *cfg = NULL;
    int status = tg_cli_load_config(&args->base, args->base.words[0], false, &cfg);
    if (status != TG_EXIT_OK) return status;
    tg_strbuf text = {0};
    teng_status made =
        draw(cfg, args->rank, "memory-svg", args->memory_svg, asked ? NULL : "the memory of one step", &text);
    if (made == TENG_OK)
        made = draw(cfg, args->rank, "schedule-svg", args->schedule_svg,
                    asked ? NULL : "the schedule of one step", &text);
    if (!args->memory_svg && !args->schedule_svg && !asked && made == TENG_OK)
        made = tg_run_plan_text(cfg, args->rank, "summary", &text);
    for (int i = 0; i < N && made == TENG_OK; i++)
        if (listings[i].asked) made = tg_run_plan_text(cfg, args->rank, listings[i].what, &text);
    if (text.len && text.data[text.len - 1] != '\n') tg_strbuf_putc(&text, '\n');
    status =
        made == TENG_OK ? tg_cli_put_text(&args->base, tg_strbuf_take(&text)) : tg_cli_failed(&args->base);
    tg_strbuf_free(&text);
    tg_config_destroy(&cfg);
    return status;
}
