/* Finds the command of a command line and runs it. Help and version may be asked for in the way of options.
 */
#include "cli/cli.h"

#include "base/fail.h"
#include "cli/cli_ranks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* tg_cmd_train(const tg_args_train *) as a function of any arguments. */
#define TG_COMMAND(id, name, words, min, max, keys, brief, details, examples)                                \
    static int run_##id(const void *args)                                                                    \
    {                                                                                                        \
        return tg_cmd_##id(args);                                                                            \
    }
#include "cli/commands.def"

static int (*const runners[TG_CLI_COMMAND_COUNT])(const void *) = {
#define TG_COMMAND(id, name, words, min, max, keys, brief, details, examples) [TG_CLI_##id] = run_##id,
#include "cli/commands.def"
};

static int show_help(const tg_cli_call *call)
{
    tg_strbuf text = {0};
    tg_cli_help_text(call->command, call->group, &text);
    fputs(tg_strbuf_str(&text), stdout);
    tg_strbuf_free(&text);
    return TG_EXIT_OK;
}

/* A full disk behind standard output must not look like success. */
static int flush_output(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    if (status == TG_EXIT_OK)
        fprintf(stderr, "teng: cannot write to standard output%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
    return status == TG_EXIT_OK ? TG_EXIT_FAILURE : status;
}

int tg_cli_main(int argc, char **argv)
{
    tg_arena *arena = tg_arena_create();
    tg_cli_call call = {0};
    int status;
    if (!arena || tg_cli_parse(arena, argc - 1, argv + 1, &call) != TENG_OK)
        status = tg_cli_ranks_misused(call.command, call.group);
    else if (call.help)
        status = show_help(&call);
    else if (call.version)
        status = printf("teng %s\n", teng_version()) < 0;
    else
        status = runners[call.command - tg_cli_commands](call.args);
    status = flush_output(status);
    tg_arena_destroy(&arena);
    return status;
}
