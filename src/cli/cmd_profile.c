/* teng profile: the report of a run's profile. Measuring is the run's business (train/profiler.h). */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "base/file.h"
#include "monitor/profile.h"

/* profile.json of a run folder; a file is taken as it is. */
static char *find_profile(const char *word)
{
    if (!tg_path_is_dir(word)) return tg_strdup(word);
    char *path = tg_path_join(word, "profile.json");
    if (path && !tg_path_exists(path)) {
        tg_fail(TENG_INVALID,
                "%s holds no profile.json: nothing was measured; run it with profile.steps=FIRST..LAST",
                word);
        tg_free(path);
        return NULL;
    }
    return path;
}

int tg_cmd_profile(const tg_args_profile *args)
{
    tg_profile *profile = NULL;
    char *path = find_profile(args->base.words[0]);
    const teng_status status = path ? tg_profile_read(path, &profile) : TENG_INVALID;
    tg_free(path);
    if (status != TENG_OK) return tg_cli_failed(&args->base);
    tg_strbuf text = {0};
    int code;
    if (args->json) {
        code = tg_cli_put_json(&args->base, tg_profile_report_json(profile));
    } else {
        tg_profile_report(profile, &text);
        code = tg_cli_put_text(&args->base, tg_strbuf_take(&text));
    }
    tg_strbuf_free(&text);
    tg_profile_destroy(&profile);
    return code;
}
