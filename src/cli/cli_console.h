/*
 * How commands talk: errors as "teng train: message" on standard error, answers on standard output, one
 * updating line for long work. The console of a training run is monitor/progress.h.
 */
#ifndef TG_CLI_CLI_CONSOLE_H
#define TG_CLI_CLI_CONSOLE_H

#include "base/json.h"
#include "cli/command.h"
#include "data/tokenizer.h"

/* Prints the pending error (or, if none is pending, that there was none) and returns TG_EXIT_FAILURE. */
int tg_cli_failed(const tg_cli_base *base);
/* Prints the pending error as wrong usage, with how to get help; returns TG_EXIT_USAGE. */
int tg_cli_misused(const tg_cli_command *command, const tg_cli_group *group);
/* Prints "teng COMMAND: warning: …" lines of the log, and nothing below a warning. */
void tg_cli_log_warnings(const tg_cli_base *base);

/* A JSON answer on standard output; takes the reference. NULL: the pending error is printed. Exit status. */
int tg_cli_put_json(const tg_cli_base *base, json_t *value);
/* Text on standard output, freed with tg_free. NULL as above. */
int tg_cli_put_text(const tg_cli_base *base, char *text);
/* Bytes as a JSON string: what is no valid UTF-8 becomes U+FFFD. New reference. */
json_t *tg_cli_json_text(const char *bytes, size_t n);

/* The line of long work on standard error: redrawn in place on a terminal, else a new line at most every ten
 * seconds. last: the final state, always shown. */
void tg_cli_status_line(bool last, const char *fmt, ...) TENG_PRINTF(2, 3);

/* A signal that ends the process removes the unfinished file that a tg_writer keeps for `path`. At most four
 * paths. */
void tg_cli_clean_up(const char *path);

/* The word bytes, a file or a folder. */
teng_status tg_cli_open_tokenizer(const char *path, tg_tokenizer **out);
/* OpenMP's threads for commands that open no device; 0 leaves the default. */
void tg_cli_set_threads(int64_t threads);

#endif
