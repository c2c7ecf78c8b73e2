/*
 * Commands at run time: the rows of commands.def, the words of a command line on their way into the argument
 * struct of their command, and what help, manual pages and completion are printed from. The struct of `train`
 * is tg_args_train with one member for each option; tg_cmd_train() runs it and returns the exit status.
 */
#ifndef TG_CLI_COMMAND_H
#define TG_CLI_COMMAND_H

#include "base/mem.h"
#include "base/strbuf.h"
#include "config/config_key.h"

enum { TG_EXIT_OK = 0, TG_EXIT_FAILURE = 1, TG_EXIT_USAGE = 2, TG_EXIT_SIGNAL = 128 /* + its number */ };

#define TG_REQUIRED NULL /* default of an option that must be given */

#define TG_CLI_REST (-2)
typedef struct tg_cli_command {
    const char *name;  /* "tokenizer train" */
    const char *words; /* "FILE..." */
    int min_words,
        max_words; /* -1: any number; TG_CLI_REST: from the first on all that follows, options too */
    bool keys;     /* key=value words are taken too */
    const char *brief, *details, *examples;
    size_t args_size;
} tg_cli_command;

typedef struct tg_cli_option {
    int command;       /* index into tg_cli_commands */
    tg_config_key key; /* name is the member's: "top_k"; def NULL: required, "": unset */
    const char *meta;  /* "N" */
} tg_cli_option;

typedef struct tg_cli_group {
    const char *name, *brief;
} tg_cli_group;

/* Every argument struct begins with this. */
typedef struct tg_cli_base {
    const tg_cli_command *command;
    const char *const *words;
    int n_words;
    const char *const *keys; /* "train.steps=20" */
    int n_keys;
} tg_cli_base;

#define TG_COMMAND(id, name, words, min, max, keys, brief, details, examples)                                \
    typedef struct tg_args_##id {                                                                            \
        tg_cli_base base;
#define TG_OPTION(id, field, kind, meta, def, range, help) TG_CTYPE_##kind field;
#define TG_COMMAND_END(id)                                                                                   \
    }                                                                                                        \
    tg_args_##id;                                                                                            \
    int tg_cmd_##id(const tg_args_##id *args);
#include "cli/commands.def"

enum {
#define TG_COMMAND(id, name, words, min, max, keys, brief, details, examples) TG_CLI_##id,
#include "cli/commands.def"
    TG_CLI_COMMAND_COUNT
};

extern const tg_cli_command tg_cli_commands[TG_CLI_COMMAND_COUNT];
extern const tg_cli_option tg_cli_options[];
extern const int tg_cli_option_count;
extern const tg_cli_group tg_cli_groups[];
extern const int tg_cli_group_count;

/* ---- the table (command_table.c) ---- */
const tg_cli_command *tg_cli_command_find(const char *name);
const tg_cli_group *tg_cli_group_find(const char *name);
/* The next option of a command after `last` (NULL: the first); NULL at the end. */
const tg_cli_option *tg_cli_option_next(const tg_cli_command *command, const tg_cli_option *last);
const tg_cli_option *tg_cli_option_find(const tg_cli_command *command, const char *name); /* "top-k" */
#define TG_OPTION_NAME 64
/* "--top-k" into buf of TG_OPTION_NAME bytes; returns buf. */
char *tg_cli_option_name(const tg_cli_option *option, char *buf);
/* "Greedy is 0. (number, at least 0; default 0.8)": the option's help with type, range and default. */
void tg_cli_option_text(const tg_cli_option *option, tg_strbuf *out);

/* ---- a command line (command_args.c) ---- */
typedef struct tg_cli_call {
    const tg_cli_command *command; /* NULL: not recognised, or the program as a whole */
    const tg_cli_group *group;     /* of "teng tokenizer" without more */
    bool help, version;            /* --help, --version: args is not made */
    void *args;
} tg_cli_call;
/* argv without the program's name. All memory is the arena's. TENG_INVALID for wrong usage, the message says
 * what and suggests what may have been meant; call->command and group are then as far as was understood. */
teng_status tg_cli_parse(tg_arena *arena, int argc, char *const *argv, tg_cli_call *call);

/* ---- printed from the table ---- */
/* command NULL: the program and its list of commands; with group, those of the group. */
void tg_cli_help_text(const tg_cli_command *command, const tg_cli_group *group, tg_strbuf *out);
void tg_cli_help_markdown(tg_strbuf *out);                           /* docs/commands.md */
void tg_cli_man_page(const tg_cli_command *command, tg_strbuf *out); /* NULL: teng(1) */
void tg_cli_man_name(const tg_cli_command *command,
                     char *buf); /* "teng-tokenizer-train"; TG_OPTION_NAME bytes */
teng_status tg_cli_completion_bash(tg_strbuf *out);

#endif
