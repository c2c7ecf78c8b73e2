/* teng plot: loss curves of runs as a picture. */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "monitor/plot.h"

#include <stdio.h>

int tg_cmd_plot(const tg_args_plot *args)
{
    tg_plot_options options = {.log_y = args->log, .title = args->title};
    if (!tg_plot_axis_parse(args->x, &options.x))
        tg_fail(TENG_INVALID, "no axis \"%s\"", args->x);
    else if (tg_plot_dirs(&options, args->base.words, args->base.n_words, args->out) == TENG_OK) {
        printf("%s: loss of %d run%s against %s\n", args->out, args->base.n_words,
               args->base.n_words == 1 ? "" : "s", args->x);
        return TG_EXIT_OK;
    }
    return tg_cli_failed(&args->base);
}
