/* teng doctor: is what a training needs in order? Ranks: bench_ranks.c measures, this prints. */
#include "cli/cli_console.h"
#include "cli/cli_ranks.h"

#include "base/fail.h"
#include "bench/bench.h"

static void put_matrix(tg_strbuf *out, const char *title, const json_t *rows)
{
    size_t a, b;
    json_t *row, *value;
    tg_strbuf_printf(out, "\n%s\n     ", title);
    for (a = 0; a < json_array_size(rows); a++)
        tg_strbuf_printf(out, " %8zu", a);
    json_array_foreach(rows, a, row)
    {
        tg_strbuf_printf(out, "\n%5zu", a);
        json_array_foreach(row, b, value)
        {
            if (json_is_null(value))
                tg_strbuf_puts(out, "        -");
            else
                tg_strbuf_printf(out, " %8.2f", json_number_value(value));
        }
    }
    tg_strbuf_putc(out, '\n');
}

static char *ranks_text(json_t *figures)
{
    tg_strbuf out = {0};
    size_t i;
    json_t *r;
    tg_strbuf_printf(&out, "%d ranks, %s\n", (int)json_integer_value(json_object_get(figures, "ranks")),
                     json_string_value(json_object_get(figures, "mpi")));
    json_array_foreach(json_object_get(figures, "of_ranks"), i, r)
    {
        tg_strbuf_printf(&out, "%s; teng %s; clock %+.0f us\n",
                         json_string_value(json_object_get(r, "where")),
                         json_string_value(json_object_get(r, "version")),
                         json_number_value(json_object_get(r, "clock_offset_us")));
    }
    if (!json_is_true(json_object_get(figures, "same_version")))
        tg_strbuf_puts(&out, "the ranks run different versions of teng: give all hosts the same\n");
    put_matrix(&out, "latency, us, one way", json_object_get(figures, "latency_us"));
    put_matrix(&out, "bandwidth, GB/s, 4 MiB messages", json_object_get(figures, "bandwidth_gb_s"));
    json_decref(figures);
    return tg_strbuf_take(&out);
}

int tg_cmd_doctor_ranks(const tg_args_doctor_ranks *args)
{
    tg_team *team = NULL;
    json_t *figures = NULL;
    if (tg_team_open(&team) != TENG_OK) return tg_cli_failed(&args->base);
    int status = tg_cli_ranks_agree(team, args->base.command, NULL, TENG_OK, false);
    if (status == TG_EXIT_OK && tg_bench_ranks(team->comm, &figures) != TENG_OK)
        status = tg_cli_ranks_failed(team, args->base.command);
    else if (figures)
        status = args->json ? tg_cli_put_json(&args->base, figures)
                            : tg_cli_put_text(&args->base, ranks_text(figures));
    tg_team_close(&team);
    return status;
}
