/* See cli_ranks.h. */
#include "cli/cli_ranks.h"

#include "base/fail.h"
#include "base/mem.h"
#include "cli/cli_console.h"

#include <stdio.h>

static int tell(const tg_team *team, const tg_cli_command *command)
{
    return tg_team_is_first(team) ? tg_cli_failed(&(tg_cli_base){.command = command}) : TG_EXIT_FAILURE;
}

int tg_cli_ranks_failed(tg_team *team, const tg_cli_command *command)
{
    if (tg_team_agreed(team)) return tell(team, command);
    tg_error error;
    tg_error_take(&error);
    tg_fail(error.status, "rank %d: %s", team->rank, error.message);
    const int status = tg_cli_failed(&(tg_cli_base){.command = command});
    char *why = tg_strdup(error.message);
    fflush(NULL);
    tg_comm_abandon(&team->comm, why ? why : "failed");
    tg_free(why);
    return status;
}

int tg_cli_ranks_agree(tg_team *team, const tg_cli_command *command, const tg_cli_group *group,
                       teng_status status, bool misused)
{
    tg_error error; /* must not be taken for a failure of what follows */
    int32_t wrong_words = misused;
    tg_error_take(&error);
    if (tg_team_max(team, &wrong_words, 1) != TENG_OK) return tg_cli_ranks_failed(team, command);
    if (status != TENG_OK) tg_error_give(&error);
    if (tg_team_agree(team, status) == TENG_OK) return TG_EXIT_OK;
    if (!wrong_words || !tg_team_agreed(team)) return tg_cli_ranks_failed(team, command);
    return tg_team_is_first(team) ? tg_cli_misused(command, group) : TG_EXIT_USAGE;
}

int tg_cli_ranks_misused(const tg_cli_command *command, const tg_cli_group *group)
{
    tg_team *team = NULL;
    tg_error error;
    if (tg_comm_launched() < 2) return tg_cli_misused(command, group);
    tg_error_take(&error);
    const teng_status joined = tg_team_open(&team);
    tg_error_give(&error);
    const int status = joined == TENG_OK ? tg_cli_ranks_agree(team, command, group, error.status, true)
                                         : tg_cli_misused(command, group);
    tg_team_close(&team);
    return status;
}
