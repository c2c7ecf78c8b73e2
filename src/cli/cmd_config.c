/* teng config: the keys of the configuration, or a check of one file. */
#include "cli/cli_console.h"
#include "cli/cli_config.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

teng_status tg_cli_override(tg_config *cfg, const tg_cli_base *base, bool *misused)
{
    for (int i = 0; i < base->n_keys; i++) {
        teng_status status = tg_config_override(cfg, base->keys[i]);
        *misused = status == TENG_INVALID;
        if (status != TENG_OK) return status;
    }
    return TENG_OK;
}

int tg_cli_load_config(const tg_cli_base *base, const char *path, bool with_files, tg_config **out)
{
    bool misused = false;
    *out = tg_config_create();
    if (*out && tg_config_load(*out, path) == TENG_OK && tg_cli_override(*out, base, &misused) == TENG_OK &&
        tg_config_check(*out, 0) == TENG_OK && (!with_files || tg_config_check_files(*out) == TENG_OK))
        return TG_EXIT_OK;
    tg_config_destroy(out);
    return misused ? tg_cli_misused(base->command, NULL) : tg_cli_failed(base);
}

static int check(const tg_args_config *args)
{
    tg_config *cfg = NULL;
    int status = tg_cli_load_config(&args->base, args->check, true, &cfg);
    if (status != TG_EXIT_OK) return status;
    int given = 0;
    for (int i = 0; i < TG_CONFIG_KEY_COUNT; i++)
        given += cfg->sources[i].file != NULL;
    if (args->json)
        status = tg_cli_put_json(&args->base, tg_config_json(cfg));
    else
        printf("%s: good; %d keys given, %d by default\n", args->check, given, TG_CONFIG_KEY_COUNT - given);
    tg_config_destroy(&cfg);
    return status;
}

int tg_cmd_config(const tg_args_config *args)
{
    const tg_cli_base *base = &args->base;
    if (args->check && (base->n_words || args->markdown))
        tg_fail(TENG_INVALID, "--check FILE goes with key=value words and --json only");
    else if (!args->check && base->n_keys)
        tg_fail(TENG_INVALID,
                "\"%.80s\" sets a key, which goes with --check FILE; `teng config %.*s` explains it",
                base->keys[0], (int)strcspn(base->keys[0], "="), base->keys[0]);
    else if (args->json && args->markdown)
        tg_fail(TENG_INVALID, "--json and --markdown exclude each other");
    if (teng_error_status() != TENG_OK) return tg_cli_misused(base->command, NULL);
    if (args->check) return check(args);
    tg_config_format format = args->json       ? TG_CONFIG_JSON
                              : args->markdown ? TG_CONFIG_MARKDOWN
                                               : TG_CONFIG_TEXT;
    char *text = tg_config_help(format, base->n_words ? base->words[0] : NULL);
    if (!text && teng_error_status() == TENG_INVALID) return tg_cli_misused(base->command, NULL);
    int status = tg_cli_put_text(base, text);
    if (status == TG_EXIT_OK && args->json) putchar('\n');
    return status;
}
