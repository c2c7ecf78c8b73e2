/*
 * Whether the other ranks are there: a rank that is gone, that left with an error or that does not come is
 * named with what it was doing, and slow ones are named in the log. Ranks of one host see each other on the
 * board (comm_board.c); of other hosts' ranks the launcher tells, or the end of patience.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "comm/comm_impl.h"

#include <stdio.h>

#define LOOK_SECONDS 0.25

static teng_status lost(tg_comm *c)
{
    char why[TG_BOARD_TEXT + 64];
    const int rank = c->board ? tg_board_lost(c->board, why, sizeof why) : -1;
    if (rank < 0) return TENG_OK;
    c->broken = c->follows = true;
    return tg_fail(TENG_IO, "rank %d %s", rank, why);
}

static int say(const tg_comm *c, int rank, const char *before, char *out, size_t size)
{
    char text[2 * TG_BOARD_TEXT];
    const bool known = c->board && tg_board_read(c->board, rank, text, sizeof text);
    return snprintf(out, size, "%srank %d%s%s", before, rank, known ? ", which is in " : " (of another host)",
                    known ? text : "");
}

/* Who has not come, and what they do; and for whom they wait themselves, when that is another. */
static void missing(const tg_comm *c, const tg_transfer *t, int n, const bool *done, char *out, size_t size)
{
    size_t at = 0;
    int told = -1;
    out[0] = 0;
    for (int i = 0; i < n && at < size - 1; i++) {
        const int peer = t[i].peer;
        bool named = done[i];
        for (int k = 0; k < i && !named; k++)
            named = !done[k] && t[k].peer == peer;
        if (named) continue;
        int k = say(c, peer, at ? "; " : "", out + at, size - at);
        if (k > 0) at += (size_t)k;
        const int cause = c->board ? tg_board_cause(c->board, peer) : peer;
        if (cause == peer || cause == told || at >= size - 1) continue;
        k = say(c, cause, "; the wait is for ", out + at, size - at);
        if (k > 0) at += (size_t)k;
        told = cause;
    }
}

/* The board has it, for those that wait for this rank. */
static void tell_wait(const tg_comm *c, const tg_transfer *t, int n, const bool *done)
{
    int i = 0;
    while (i < n && done[i])
        i++;
    if (c->board) tg_board_waits(c->board, i < n ? t[i].peer : -1);
}

teng_status tg_comm_look_around(tg_comm *c, double began, double *warn, const tg_transfer *t, int n,
                                const bool *done)
{
    char who[1024];
    const char *site = tg_comm_site();
    const teng_status status = lost(c);
    tell_wait(c, t, n, done);
    if (status != TENG_OK) {
        tg_fail_context("rank %d waits in %s", c->rank, c->call);
        return status;
    }
    const double waited = tg_clock_seconds() - began;
    if (*warn <= 0) *warn = c->timeout > 0 ? c->timeout / 10 : 30;
    const bool over = c->timeout > 0 && waited >= c->timeout;
    if (!over && waited < *warn) return TENG_OK;
    missing(c, t, n, done, who, sizeof who);
    if (over)
        return tg_fail(TENG_IO, "rank %d has waited %.1f s (parallel.timeout) in %s%s%s for %s", c->rank,
                       waited, c->call, site ? " at " : "", site ? site : "", who);
    tg_warn("rank %d has waited %.1f s in %s for %s", c->rank, waited, c->call, who);
    *warn *= 2;
    return TENG_OK;
}

teng_status tg_comm_doing(tg_comm *c, const char *text)
{
    if (!c || !c->board) return TENG_OK;
    tg_board_doing(c->board, text);
    const double now = tg_clock_seconds();
    if (now - c->looked < LOOK_SECONDS) return TENG_OK;
    c->looked = now;
    return lost(c);
}

void tg_comm_step(tg_comm *c, int64_t step)
{
    if (c && c->board) tg_board_step(c->board, step);
}
