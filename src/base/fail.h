/* How functions report failure: one pending error a thread, the first wins, context is prepended on the way
 * up. */
#ifndef TG_BASE_FAIL_H
#define TG_BASE_FAIL_H

#include "teng/status.h"

#include <stdbool.h>

/* Records the failure unless one is pending; returns code. The message says what, where, the limit, the
 * remedy. */
TENG_API teng_status tg_fail(teng_status code, const char *fmt, ...) TENG_PRINTF(2, 3);
/* As tg_fail, for a failed system call: appends ": " and strerror(err). */
teng_status tg_fail_errno(teng_status code, int err, const char *fmt, ...) TENG_PRINTF(3, 4);
/* Prepends "context: " to the pending message; returns the pending status (TENG_OK when nothing is pending).
 */
teng_status tg_fail_context(const char *fmt, ...) TENG_PRINTF(1, 2);
/* Moves the pending error of another thread here: take() copies and clears it there, give() sets it here. */
typedef struct tg_error {
    teng_status status;
    char message[2048];
} tg_error;
void tg_error_take(tg_error *out);
teng_status tg_error_give(const tg_error *error);

#define TG_TRY(expr)                                                                                         \
    do {                                                                                                     \
        teng_status tg_try_status_ = (expr);                                                                 \
        if (tg_try_status_ != TENG_OK) return tg_try_status_;                                                \
    } while (0)

/* Nearest of n names to a misspelt one (edit distance at most max(2, len/3)), or NULL. */
const char *tg_nearest_name(const char *name, const char *const *names, int n);

#endif
