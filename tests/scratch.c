/* See scratch.h. */
#include "scratch.h"

#include "base/file.h"
#include "base/mem.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[64];

int scratch_enter(const char *name)
{
    teng_error_clear();
    snprintf(dir, sizeof dir, "%s.XXXXXX", name);
    return mkdtemp(dir) ? 0 : -1;
}

int scratch_leave(void)
{
    tg_alloc_fail_at(0);
    teng_error_clear();
    return tg_remove_tree(dir) == TENG_OK ? 0 : -1;
}

const char *scratch_dir(void)
{
    return dir;
}

const char *in_dir(const char *name)
{
    static char paths[16][200];
    static int next;
    char *p = paths[next++ % 16];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

void assert_ok(teng_status status)
{
    if (status != TENG_OK) fail_msg("%s", teng_error());
}

void assert_error(teng_status got, teng_status want, const char *parts)
{
    char copy[500];
    if (got != want)
        fail_msg("status %s, not %s: %s", teng_status_name(got), teng_status_name(want), teng_error());
    snprintf(copy, sizeof copy, "%s", parts);
    for (char *part = strtok(copy, "|"); part; part = strtok(NULL, "|"))
        if (!strstr(teng_error(), part)) fail_msg("\"%s\" lacks \"%s\"", teng_error(), part);
    teng_error_clear();
}
