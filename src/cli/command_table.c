/* The rows of commands.def as arrays, and look-ups in them. It knows no command line and prints nothing. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

const tg_cli_command tg_cli_commands[TG_CLI_COMMAND_COUNT] = {
#define TG_COMMAND(id, name, words, min, max, keys, brief, details, examples)                                \
    [TG_CLI_##id] = {name, words, min, max, keys, brief, details, examples, sizeof(tg_args_##id)},
#include "cli/commands.def"
};

const tg_cli_option tg_cli_options[] = {
#define TG_OPTION(id, field, kind, meta, def, range, help)                                                   \
    {TG_CLI_##id, {#field, TG_KIND_##kind, offsetof(tg_args_##id, field), def, range, help, NULL}, meta},
#include "cli/commands.def"
};
const int tg_cli_option_count = (int)(sizeof tg_cli_options / sizeof *tg_cli_options);

const tg_cli_group tg_cli_groups[] = {
#define TG_GROUP(name, brief) {name, brief},
#include "cli/commands.def"
};
const int tg_cli_group_count = (int)(sizeof tg_cli_groups / sizeof *tg_cli_groups);

const tg_cli_command *tg_cli_command_find(const char *name)
{
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++)
        if (strcmp(tg_cli_commands[i].name, name) == 0) return &tg_cli_commands[i];
    return NULL;
}

const tg_cli_group *tg_cli_group_find(const char *name)
{
    for (int i = 0; i < tg_cli_group_count; i++)
        if (strcmp(tg_cli_groups[i].name, name) == 0) return &tg_cli_groups[i];
    return NULL;
}

const tg_cli_option *tg_cli_option_next(const tg_cli_command *command, const tg_cli_option *last)
{
    int wanted = (int)(command - tg_cli_commands);
    for (const tg_cli_option *o = last ? last + 1 : tg_cli_options; o < tg_cli_options + tg_cli_option_count;
         o++)
        if (o->command == wanted) return o;
    return NULL;
}

char *tg_cli_option_name(const tg_cli_option *option, char *buf)
{
    snprintf(buf, TG_OPTION_NAME, "--%s", option->key.name);
    for (char *c = buf; *c; c++)
        if (*c == '_') *c = '-';
    return buf;
}

const tg_cli_option *tg_cli_option_find(const tg_cli_command *command, const char *name)
{
    char buf[TG_OPTION_NAME];
    for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(command, o));)
        if (strcmp(tg_cli_option_name(o, buf) + 2, name) == 0) return o;
    return NULL;
}

void tg_cli_option_text(const tg_cli_option *option, tg_strbuf *out)
{
    const tg_config_key *key = &option->key;
    tg_strbuf_puts(out, key->help);
    if (key->kind == TG_KIND_BOOL) return;
    char range[TG_RANGE_TEXT];
    const char *kind =
        key->kind == TG_KIND_STRINGS ? "text, may be given again" : tg_config_kind_text(key->kind);
    tg_config_range_text(key, range);
    if (!*range)
        tg_strbuf_printf(out, " (%s", kind);
    else if (key->kind == TG_KIND_PATH)
        tg_strbuf_printf(out, " (%s, or the word %s", kind, range);
    else if (key->kind == TG_KIND_STRING)
        tg_strbuf_printf(out, strchr(key->range, '|') ? " (one of %s" : " (%s", range);
    else
        tg_strbuf_printf(out, " (%s, %s", kind, range);
    if (key->def && *key->def) tg_strbuf_printf(out, "; default %s", key->def);
    tg_strbuf_puts(out, key->def ? ")" : "; must be given)");
}
