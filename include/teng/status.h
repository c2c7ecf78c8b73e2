/*
 * Status codes and the thread's error message.
 *
 * Every fallible function of teng returns a teng_status or a pointer that is NULL on failure. The message of
 * the FIRST failure since the last teng_error_clear() on this thread is kept: later failures that follow from
 * it do not overwrite it, so model code may nest calls and look once. The library never exits the process and
 * never prints on its own behalf.
 */
#ifndef TENG_STATUS_H
#define TENG_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TENG_API __attribute__((visibility("default")))
#define TENG_PRINTF(fmt_index, first_index) __attribute__((format(printf, fmt_index, first_index)))
#else
#define TENG_API
#define TENG_PRINTF(fmt_index, first_index)
#endif

typedef enum teng_status {
    TENG_OK = 0,
    TENG_INVALID,     /* an argument, a shape, a configuration value is wrong */
    TENG_IO,          /* the operating system refused a file operation */
    TENG_FORMAT,      /* a file does not hold what its format says */
    TENG_MEMORY,      /* out of memory, or over the memory budget */
    TENG_UNSUPPORTED, /* known, and not implemented: the message names it */
    TENG_STATE,       /* called in the wrong order, or a resource is held by another run */
    TENG_NUMERIC,     /* overflow or NaN where a finite number is required */
    TENG_INTERRUPTED, /* a stop was requested; state was kept */
    TENG_STATUS_COUNT
} teng_status;

/* A place in the user's source, captured by the API macros. file may be NULL (unknown). */
typedef struct teng_src {
    const char *file;
    int line;
} teng_src;
#define TENG_HERE ((teng_src){__FILE__, __LINE__})

/* Name of a status ("ok", "invalid", ...). Never NULL. */
TENG_API const char *teng_status_name(teng_status status);
/* Message of this thread's first pending failure, "" when there is none. Valid until the next teng call. */
TENG_API const char *teng_error(void);
/* Status of this thread's first pending failure, TENG_OK when there is none. */
TENG_API teng_status teng_error_status(void);
/* Forgets this thread's pending failure. */
TENG_API void teng_error_clear(void);
/* Library version, "major.minor.patch". */
TENG_API const char *teng_version(void);

#ifdef __cplusplus
}
#endif
#endif
