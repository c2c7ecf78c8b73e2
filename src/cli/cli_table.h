/* A JSON answer as text that people read: names and values, spread beside medians, lists of objects as
 * tables. What the names mean is the command's help. */
#ifndef TG_CLI_CLI_TABLE_H
#define TG_CLI_CLI_TABLE_H

#include "base/json.h"
#include "base/strbuf.h"

void tg_cli_table(const json_t *answer, tg_strbuf *out);

#endif
