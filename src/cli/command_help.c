/* Help for a terminal and docs/commands.md, from the table of commands. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 100, BRIEF_COLUMN = 20, OPTION_COLUMN = 28 };

/* Text in lines of at most WIDTH columns; the first line goes on at `column`, later ones are indented. */
static void put_wrapped(tg_strbuf *out, size_t column, size_t indent, const char *text)
{
    bool first = true;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (!first && column + 1 + n > WIDTH) {
            tg_strbuf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            tg_strbuf_putc(out, ' ');
            column++;
        }
        tg_strbuf_add(out, text, n);
        column += n;
        first = false;
        text += n + (text[n] == ' ');
    }
    tg_strbuf_putc(out, '\n');
}

static void put_usage(tg_strbuf *out, const tg_cli_command *c)
{
    tg_strbuf_printf(out, "teng %s%s%s", c->name, *c->words ? " " : "", c->words);
    char name[TG_OPTION_NAME];
    bool more = false;
    for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(c, o));) {
        if (!o->key.def) tg_strbuf_printf(out, " %s %s", tg_cli_option_name(o, name), o->meta);
        more = more || o->key.def;
    }
    if (more) tg_strbuf_puts(out, " [options]");
}

static void put_option(tg_strbuf *out, const char *left, const char *text)
{
    size_t n = strlen(left) + 2;
    tg_strbuf_printf(out, "  %s", left);
    if (n + 2 > OPTION_COLUMN) {
        tg_strbuf_putc(out, '\n');
        n = 0;
    }
    tg_strbuf_printf(out, "%*s", (int)(OPTION_COLUMN - n), "");
    put_wrapped(out, OPTION_COLUMN, OPTION_COLUMN, text);
}

static void put_command(const tg_cli_command *c, tg_strbuf *out)
{
    tg_strbuf_printf(out, "teng %s: %s\n\nusage: ", c->name, c->brief);
    put_usage(out, c);
    tg_strbuf_puts(out, "\n\n");
    put_wrapped(out, 0, 0, c->details);
    tg_strbuf_puts(out, "\noptions:\n");
    tg_strbuf text = {0}, left = {0};
    char name[TG_OPTION_NAME];
    for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(c, o));) {
        tg_strbuf_clear(&text);
        tg_strbuf_clear(&left);
        tg_strbuf_printf(&left, "%s%s%s", tg_cli_option_name(o, name), *o->meta ? " " : "", o->meta);
        tg_cli_option_text(o, &text);
        put_option(out, tg_strbuf_str(&left), tg_strbuf_str(&text));
    }
    put_option(out, "-h, --help", "Show this.");
    out->failed = out->failed || text.failed || left.failed;
    tg_strbuf_free(&text);
    tg_strbuf_free(&left);
    tg_strbuf_puts(out, "\nexamples:\n");
    for (const char *line = c->examples; *line;) {
        size_t n = strcspn(line, "\n");
        tg_strbuf_printf(out, "  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

void tg_cli_help_text(const tg_cli_command *command, const tg_cli_group *group, tg_strbuf *out)
{
    if (command) {
        put_command(command, out);
        return;
    }
    if (group)
        tg_strbuf_printf(out, "teng %s: %s\n\nusage: teng %s COMMAND [options]\n\n", group->name,
                         group->brief, group->name);
    else
        tg_strbuf_printf(out, "teng %s trains large language models.\n\nusage: teng COMMAND [options]\n\n",
                         teng_version());
    size_t n = group ? strlen(group->name) : 0;
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++) {
        const tg_cli_command *c = &tg_cli_commands[i];
        if (group && (strncmp(c->name, group->name, n) != 0 || c->name[n] != ' ')) continue;
        tg_strbuf_printf(out, "  %-*s", BRIEF_COLUMN - 2, c->name);
        put_wrapped(out, BRIEF_COLUMN, BRIEF_COLUMN, c->brief);
    }
    tg_strbuf_puts(
        out, "\n`teng help COMMAND` shows how a command is used, `teng config` the keys of a configuration.\n"
             "Exit status: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C.\n");
}

/* Text of a table cell or paragraph: "|" and "<" would be read as markup. */
static void put_cell(tg_strbuf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '<') tg_strbuf_putc(out, '\\');
        tg_strbuf_putc(out, *text);
    }
}

static void put_command_markdown(const tg_cli_command *c, tg_strbuf *out)
{
    tg_strbuf_printf(out, "\n## teng %s\n\n%s\n\n```\n", c->name, c->brief);
    put_usage(out, c);
    tg_strbuf_puts(out, "\n```\n\n");
    put_wrapped(out, 0, 0, c->details);
    char name[TG_OPTION_NAME];
    tg_strbuf text = {0};
    for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(c, o));) {
        if (!text.len) tg_strbuf_puts(out, "\n| option | meaning |\n| --- | --- |\n");
        tg_strbuf_clear(&text);
        tg_cli_option_text(o, &text);
        tg_strbuf_printf(out, "| `%s%s%s` | ", tg_cli_option_name(o, name), *o->meta ? " " : "", o->meta);
        put_cell(out, tg_strbuf_str(&text));
        tg_strbuf_puts(out, " |\n");
    }
    out->failed = out->failed || text.failed;
    tg_strbuf_free(&text);
    tg_strbuf_printf(out, "\n```\n%s\n```\n", c->examples);
}

void tg_cli_help_markdown(tg_strbuf *out)
{
    tg_strbuf_puts(
        out,
        "# Commands\n\n"
        "Made from `src/cli/commands.def` by `teng help --markdown`; a test compares the two. Do not "
        "edit.\n\n"
        "- `--name value` and `--name=value` are the same; options and arguments may be mixed; `--` ends the "
        "options.\n"
        "- `key=value` words set keys of the configuration ([configuration.md](configuration.md)); a path "
        "that\n"
        "  looks like one is written with `./` in front.\n"
        "- Answers go to standard output, errors and progress of long work to standard error.\n"
        "- Exit status: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C (143 by SIGTERM); a run that "
        "was\n"
        "  ended so has been saved and says how to go on.\n"
        "- `teng COMMAND --help`, `teng help COMMAND` and `man teng-COMMAND` show the same as this page.\n");
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++)
        put_command_markdown(&tg_cli_commands[i], out);
}
