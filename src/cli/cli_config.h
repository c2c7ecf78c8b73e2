/* A configuration from a file and the key=value words of a command line, for the commands that take both. */
#ifndef TG_CLI_CLI_CONFIG_H
#define TG_CLI_CLI_CONFIG_H

#include "cli/command.h"

/* Applies the words; *misused: one of them is wrong, rather than memory out. */
teng_status tg_cli_override(tg_config *cfg, const tg_cli_base *base, bool *misused);
/* Loads, overrides, checks; with_files: the files and folders that it names exist too. On failure the message
 * has been printed; returns the exit status. */
int tg_cli_load_config(const tg_cli_base *base, const char *path, bool with_files, tg_config **out);

#endif
