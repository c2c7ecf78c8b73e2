/*
 * A bash script that completes commands, options, their words, files and configuration keys, made from the
 * tables of commands and keys. The script asks nothing of the program and needs no bash-completion package.
 */
#include "cli/command.h"

#include "base/fail.h"

#include <string.h>

/* Bash cuts words at "=" and ":", teng does not: the line is cut at blanks again, and what stands before the
 * last such character is taken off the answers. */
static const char script_head[] =
    "# Bash completion for teng; made by `teng completion bash`.\n"
    "_teng_files()\n"
    "{\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$1\")\n"
    "}\n"
    "_teng()\n"
    "{\n"
    "    local line=${COMP_LINE:0:COMP_POINT} cur prev word command list= keys= files= option=\n"
    "    local -a words plain=()\n"
    "    read -ra words <<<\"$line\"\n"
    "    [[ $line == *[[:space:]] ]] && words+=('')\n"
    "    cur=${words[-1]} prev=${words[-2]}\n"
    "    for word in \"${words[@]:1:${#words[@]}-2}\"; do\n"
    "        [[ $word == -* ]] || plain+=(\"$word\")\n"
    "    done\n"
    "    command=${plain[0]}\n"
    "    case $command in\n";

static const char script_value[] = "    if [[ $cur == --*=* ]]; then\n"
                                   "        option=${cur%%=*} cur=${cur#*=}\n"
                                   "    elif [[ $prev == --* ]]; then\n"
                                   "        option=$prev\n"
                                   "    fi\n"
                                   "    COMPREPLY=()\n"
                                   "    case $command:$option in\n";

static const char script_tail[] =
    "    if [[ $cur == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$list --help\" -- \"$cur\")\n"
    "    elif [[ $files ]]; then\n"
    "        _teng_files \"$cur\"\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$words_of\" -- \"$cur\")\n"
    "    fi\n"
    "    if [[ $keys ]]; then\n"
    "        if [[ $cur == *=* ]]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$_teng_values\" -- \"$cur\")\n"
    "        elif [[ $cur != -* && $cur != */* ]]; then\n"
    "            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W \"$_teng_keys\" -- \"$cur\")\n"
    "            [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null\n"
    "        fi\n"
    "    fi\n"
    "    [[ $cur != *=* || $COMP_WORDBREAKS != *=* ]] || "
    "COMPREPLY=(\"${COMPREPLY[@]#\"${cur%\"${cur##*=}\"}\"}\")\n"
    "}\n"
    "complete -F _teng teng\n";

/* "_teng_keys='train.steps= …'" and the values of those keys that have words. */
static teng_status put_keys(tg_strbuf *out)
{
    tg_strbuf values = {0};
    tg_strbuf_puts(out, "_teng_keys='");
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        tg_strbuf_printf(out, "%s%s=", i ? " " : "", tg_config_keys[i].name);
        char *typed = tg_asprintf("%s=", tg_config_keys[i].name);
        char *offers = typed ? tg_config_complete(typed) : NULL;
        tg_strbuf_puts(&values, offers ? offers : "");
        values.failed = values.failed || !offers;
        tg_free(offers);
        tg_free(typed);
    }
    for (size_t i = 0; i < values.len; i++)
        if (values.data[i] == '\n') values.data[i] = ' ';
    tg_strbuf_printf(out, "'\n_teng_values='%s'\n", tg_strbuf_str(&values));
    bool failed = values.failed || out->failed;
    tg_strbuf_free(&values);
    return failed ? tg_fail(TENG_MEMORY, "completion: out of memory") : TENG_OK;
}

/* The words after "teng" or after a group's name. */
static void put_command_words(tg_strbuf *out, const char *group)
{
    size_t n = group ? strlen(group) : 0;
    const char *gap = "";
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++) {
        const char *name = tg_cli_commands[i].name, *space = strchr(name, ' ');
        bool mine = group ? space && (size_t)(space - name) == n && strncmp(name, group, n) == 0 : !space;
        if (!mine) continue;
        tg_strbuf_printf(out, "%s%s", gap, group ? space + 1 : name);
        gap = " ";
    }
    for (int i = 0; !group && i < tg_cli_group_count; i++)
        tg_strbuf_printf(out, " %s", tg_cli_groups[i].name);
}

/* Which command: groups take the second word into the name. */
static void put_groups(tg_strbuf *out)
{
    for (int i = 0; i < tg_cli_group_count; i++) {
        const char *name = tg_cli_groups[i].name;
        tg_strbuf_printf(out, "    %s) [[ ${#plain[@]} -lt 2 ]] || command+=\" ${plain[1]}\" ;;\n", name);
    }
    tg_strbuf_puts(out, "    esac\n");
}

/* What the value of an option may be: words, a file, or (number, text) nothing. */
static void put_values(tg_strbuf *out)
{
    char spelled[TG_OPTION_NAME];
    for (int i = 0; i < tg_cli_option_count; i++) {
        const tg_cli_option *o = &tg_cli_options[i];
        if (o->key.kind == TG_KIND_BOOL) continue;
        tg_strbuf_printf(out, "    '%s:%s') ", tg_cli_commands[o->command].name,
                         tg_cli_option_name(o, spelled));
        if (o->key.kind == TG_KIND_PATH) {
            tg_strbuf_puts(out, "_teng_files \"$cur\"");
        } else if (o->key.kind == TG_KIND_STRING && *o->key.range) {
            tg_strbuf_puts(out, "mapfile -t COMPREPLY < <(compgen -W '");
            for (const char *c = o->key.range; *c; c++)
                tg_strbuf_putc(out, *c == '|' ? ' ' : *c);
            tg_strbuf_puts(out, "' -- \"$cur\")");
        } else {
            tg_strbuf_puts(out, ":");
        }
        tg_strbuf_puts(out, "; return ;;\n");
    }
    tg_strbuf_puts(out, "    esac\n");
}

/* What a command takes: its options, then files, key=value words, or words of its own. */
static void put_commands(tg_strbuf *out)
{
    char spelled[TG_OPTION_NAME];
    tg_strbuf_puts(out, "    local words_of=\n    case $command in\n    '') words_of='");
    put_command_words(out, NULL);
    tg_strbuf_puts(out, "' list=--version ;;\n");
    for (int i = 0; i < tg_cli_group_count; i++) {
        tg_strbuf_printf(out, "    %s) words_of='", tg_cli_groups[i].name);
        put_command_words(out, tg_cli_groups[i].name);
        tg_strbuf_puts(out, "' ;;\n");
    }
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++) {
        const tg_cli_command *c = &tg_cli_commands[i];
        tg_strbuf_printf(out, "    '%s') list='", c->name);
        for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(c, o));)
            tg_strbuf_printf(out, "%s ", tg_cli_option_name(o, spelled));
        tg_strbuf_puts(out, c->keys ? "' keys=1" : "'");
        if (i == TG_CLI_help) {
            tg_strbuf_puts(out, " words_of='");
            put_command_words(out, NULL);
            tg_strbuf_puts(out, "'");
        } else if (i == TG_CLI_completion) {
            tg_strbuf_printf(out, " words_of='%s'", c->words);
        } else if (i != TG_CLI_config && c->max_words != 0) {
            tg_strbuf_puts(out, " files=1");
        }
        tg_strbuf_puts(out, " ;;\n");
    }
    tg_strbuf_puts(out, "    esac\n");
}

teng_status tg_cli_completion_bash(tg_strbuf *out)
{
    tg_strbuf_puts(out, script_head);
    put_groups(out);
    tg_strbuf_puts(out, script_value);
    put_values(out);
    put_commands(out);
    tg_strbuf_puts(out, script_tail);
    return put_keys(out);
}
