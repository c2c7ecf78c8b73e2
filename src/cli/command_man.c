/* Manual pages in roff (man macros) from the table of commands: teng(1) and one page a command. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

/* Text that roff must take literally. */
static void put_escaped(tg_strbuf *out, const char *text, size_t n)
{
    bool line_start = true;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (line_start && (c == '.' || c == '\'')) tg_strbuf_puts(out, "\\&");
        if (c == '\\')
            tg_strbuf_puts(out, "\\e");
        else if (c == '-')
            tg_strbuf_puts(out, "\\-");
        else if (c == '\'')
            tg_strbuf_puts(out, "\\(aq");
        else if (c == '`')
            tg_strbuf_puts(out, "\\(ga");
        else
            tg_strbuf_putc(out, c);
        line_start = c == '\n';
    }
}

static void put(tg_strbuf *out, const char *text)
{
    put_escaped(out, text, strlen(text));
}

void tg_cli_man_name(const tg_cli_command *command, char *buf)
{
    snprintf(buf, TG_OPTION_NAME, "teng%s%s", command ? "-" : "", command ? command->name : "");
    for (char *c = buf; *c; c++)
        if (*c == ' ') *c = '-';
}

static void put_title(tg_strbuf *out, const char *page, const char *brief)
{
    tg_strbuf_puts(out, ".TH \"");
    for (const char *c = page; *c; c++) {
        char upper = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
        put_escaped(out, &upper, 1);
    }
    tg_strbuf_printf(out, "\" 1 \"\" \"teng %s\" \"teng\"\n.SH NAME\n", teng_version());
    put(out, page);
    tg_strbuf_puts(out, " \\- ");
    size_t n = strlen(brief);
    put_escaped(out, brief, n - (brief[n - 1] == '.'));
    tg_strbuf_putc(out, '\n');
}

static void put_program(tg_strbuf *out)
{
    put_title(out, "teng", "trains large language models");
    tg_strbuf_puts(out, ".SH SYNOPSIS\n.B teng\n.I COMMAND\n[options]\n.SH DESCRIPTION\n");
    put(out, "teng trains large language models, evaluates them and lets them write. Each command has a page "
             "of its "
             "own. Options and arguments may be mixed; \"--name value\" and \"--name=value\" are the same; "
             "\"--\" ends "
             "the options.\n");
    tg_strbuf_puts(out, ".SH COMMANDS\n");
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++) {
        char page[TG_OPTION_NAME];
        tg_cli_man_name(&tg_cli_commands[i], page);
        tg_strbuf_puts(out, ".TP\n.BR ");
        put(out, page);
        tg_strbuf_puts(out, " (1)\n");
        put(out, tg_cli_commands[i].brief);
        tg_strbuf_putc(out, '\n');
    }
    tg_strbuf_puts(out, ".SH ENVIRONMENT\n.TP\n.B TENG_CPU_ISA\n");
    put(out, "Highest instruction set that kernels may use: v2, v3, v4, v4bf, neon.\n");
    tg_strbuf_puts(out, ".TP\n.B OMP_NUM_THREADS\n");
    put(out, "Threads that compute, where neither an option nor a key says it.\n");
}

static void put_command(tg_strbuf *out, const tg_cli_command *c)
{
    char page[TG_OPTION_NAME], name[TG_OPTION_NAME];
    tg_cli_man_name(c, page);
    put_title(out, page, c->brief);
    tg_strbuf_printf(out, ".SH SYNOPSIS\n.B teng %s\n", c->name);
    put(out, c->words);
    for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(c, o));) {
        if (o->key.def) continue;
        tg_strbuf_putc(out, ' ');
        put(out, tg_cli_option_name(o, name));
        tg_strbuf_putc(out, ' ');
        put(out, o->meta);
    }
    tg_strbuf_puts(out, " [options]\n.SH DESCRIPTION\n");
    put(out, c->details);
    tg_strbuf_puts(out, "\n.SH OPTIONS\n");
    tg_strbuf text = {0};
    for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(c, o));) {
        tg_strbuf_puts(out, ".TP\n\\fB");
        put(out, tg_cli_option_name(o, name));
        tg_strbuf_puts(out, "\\fR");
        if (*o->meta) tg_strbuf_puts(out, " \\fI");
        put(out, o->meta);
        tg_strbuf_puts(out, *o->meta ? "\\fR\n" : "\n");
        tg_strbuf_clear(&text);
        tg_cli_option_text(o, &text);
        put(out, tg_strbuf_str(&text));
        tg_strbuf_putc(out, '\n');
    }
    out->failed = out->failed || text.failed;
    tg_strbuf_free(&text);
    tg_strbuf_puts(out,
                   ".TP\n.BR \\-h \", \" \\-\\-help\nShow how the command is used.\n.SH EXAMPLES\n.nf\n");
    put(out, c->examples);
    tg_strbuf_puts(out, "\n.fi\n");
}

void tg_cli_man_page(const tg_cli_command *command, tg_strbuf *out)
{
    if (command)
        put_command(out, command);
    else
        put_program(out);
    tg_strbuf_puts(
        out, ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl\\-C.\n.SH SEE ALSO\n");
    tg_strbuf_puts(out, command ? ".BR teng (1)\n" : ".BR teng\\-help (1)\n");
}
