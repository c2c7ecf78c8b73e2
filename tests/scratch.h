/* A folder of a test's own, made before and removed after each case, and assertions on pending errors. */
#ifndef TENG_TESTS_SCRATCH_H
#define TENG_TESTS_SCRATCH_H

#include "teng/status.h"

/* For setup and teardown functions: 0, or -1 when the folder cannot be made or removed. Both forget pending
 * errors; leave also switches allocation failures off. */
int scratch_enter(const char *name);
int scratch_leave(void);
const char *scratch_dir(void);
/* Path of a name in the folder; the last 16 stay valid. */
const char *in_dir(const char *name);

void assert_ok(teng_status status);
/* The status is `want` and the pending message holds each of the parts ('|' between them); clears it. */
void assert_error(teng_status got, teng_status want, const char *parts);

#endif
