/* Commands that run on several ranks: what is wrong on all of them is told once. */
#ifndef TG_CLI_CLI_RANKS_H
#define TG_CLI_CLI_RANKS_H

#include "cli/command.h"
#include "train/team.h"

/* Collective, the first thing that a command of ranks does: whether every rank has understood its command
 * line and configuration. status: this rank's, with its message; misused: the words are wrong. TG_EXIT_OK
 * when all have; else the exit status, the same on all, and rank 0 has printed why. */
int tg_cli_ranks_agree(tg_team *team, const tg_cli_command *command, const tg_cli_group *group,
                       teng_status status, bool misused);
/* Prints the pending error. One that all ranks have agreed upon is told by rank 0. One that this rank has
 * alone is told with its number, and to the others, who wait for it: all end. TG_EXIT_FAILURE. */
int tg_cli_ranks_failed(tg_team *team, const tg_cli_command *command);
/* As tg_cli_misused, for a command line that was not understood; of several ranks rank 0 tells it. */
int tg_cli_ranks_misused(const tg_cli_command *command, const tg_cli_group *group);

#endif
