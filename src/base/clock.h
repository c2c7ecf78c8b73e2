/* Time. */
#ifndef TG_BASE_CLOCK_H
#define TG_BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

double tg_clock_seconds(void); /* monotonic, seconds since an arbitrary point */
int64_t tg_clock_unix(void);   /* seconds since 1970 */
/* "2026-03-01T12:34:56Z" into buf (at least 32 bytes). */
char *tg_clock_iso(char *buf, int64_t unix_seconds);
/* Peak resident set of this process in bytes; current one. 0 when unknown. */
uint64_t tg_peak_rss(void);
uint64_t tg_current_rss(void);
/* The peak starts anew from what is resident now; false where the system does not do that. */
bool tg_peak_rss_reset(void);
/* When this process was started, on the clock of tg_clock_seconds, up to 0.01 s too early; negative when
 * unknown. */
double tg_process_start(void);

#endif
