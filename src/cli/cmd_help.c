/* teng help, completion and version: what the table of commands says, in the form that was asked for. */
#include "base/fail.h"
#include "base/file.h"
#include "cli/cli_console.h"
#include "comm/comm.h"
#include "device/cpu_gemm.h"

#include <stdio.h>
#include <string.h>

/* The pages of all commands, and teng(1), as DIR/teng-NAME.1. */
static teng_status write_pages(const char *dir)
{
    TG_TRY(tg_mkdirs(dir));
    teng_status status = TENG_OK;
    for (int i = -1; i < TG_CLI_COMMAND_COUNT && status == TENG_OK; i++) {
        const tg_cli_command *command = i < 0 ? NULL : &tg_cli_commands[i];
        char page[TG_OPTION_NAME];
        tg_cli_man_name(command, page);
        char *path = tg_asprintf("%s/%s.1", dir, page);
        tg_strbuf text = {0};
        tg_cli_man_page(command, &text);
        status = !path || text.failed ? tg_fail(TENG_MEMORY, "%s: out of memory", page)
                                      : tg_file_write(path, text.data, text.len);
        tg_strbuf_free(&text);
        tg_free(path);
    }
    return status;
}

int tg_cmd_help(const tg_args_help *args)
{
    if (args->out && (!args->man || args->base.n_words || args->markdown)) {
        tg_fail(TENG_INVALID, "--out DIR goes with --man alone: it writes the pages of all commands");
        return tg_cli_misused(args->base.command, NULL);
    }
    if (args->out) return write_pages(args->out) == TENG_OK ? TG_EXIT_OK : tg_cli_failed(&args->base);
    tg_cli_call call = {0};
    if (args->base.n_words) {
        char *words[3] = {0}; /* the words, then --help: found and checked as any command line */
        int n = args->base.n_words;
        for (int i = 0; i < n; i++)
            words[i] = (char *)(uintptr_t)args->base.words[i];
        words[n] = (char *)(uintptr_t) "--help";
        tg_arena *arena = tg_arena_create();
        teng_status status = arena ? tg_cli_parse(arena, n + 1, words, &call) : TENG_MEMORY;
        tg_arena_destroy(&arena);
        if (status != TENG_OK) return tg_cli_misused(args->base.command, NULL);
    }
    tg_strbuf text = {0};
    if (args->man)
        tg_cli_man_page(call.command, &text);
    else if (args->markdown)
        tg_cli_help_markdown(&text);
    else
        tg_cli_help_text(call.command, call.group, &text);
    return tg_cli_put_text(&args->base, tg_strbuf_take(&text));
}

int tg_cmd_completion(const tg_args_completion *args)
{
    if (strcmp(args->base.words[0], "bash") != 0) {
        tg_fail(TENG_INVALID, "no completion for \"%.80s\"; known: bash", args->base.words[0]);
        return tg_cli_misused(args->base.command, NULL);
    }
    tg_strbuf text = {0};
    if (tg_cli_completion_bash(&text) != TENG_OK) {
        tg_strbuf_free(&text);
        return tg_cli_failed(&args->base);
    }
    return tg_cli_put_text(&args->base, tg_strbuf_take(&text));
}

int tg_cmd_version(const tg_args_version *args)
{
    (void)args;
    char gemm[32];
    const char *mpi;
    tg_comm_has_mpi(&mpi);
    printf("teng %s\n%s\n%s\n", teng_version(), tg_gemm_version(gemm), mpi);
    return TG_EXIT_OK;
}
