/* Log lines go to a callback that the application installs; without one they are dropped. Thread-safe. */
#ifndef TG_BASE_LOG_H
#define TG_BASE_LOG_H

#include "teng/status.h"

typedef enum tg_log_level { TG_LOG_DEBUG, TG_LOG_INFO, TG_LOG_WARN, TG_LOG_ERROR } tg_log_level;
typedef void tg_log_sink(void *user, tg_log_level level, const char *line);

void tg_log_set_sink(tg_log_sink *sink, void *user);
void tg_log(tg_log_level level, const char *fmt, ...) TENG_PRINTF(2, 3);
#define tg_info(...) tg_log(TG_LOG_INFO, __VA_ARGS__)
#define tg_warn(...) tg_log(TG_LOG_WARN, __VA_ARGS__)
#define tg_debug(...) tg_log(TG_LOG_DEBUG, __VA_ARGS__)

#endif
