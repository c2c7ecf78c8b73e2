/*
 * Fuzz target: any bytes as the text of a graph. Either they are refused with a message that names the line,
 * or the graph keeps every invariant and prints as text that parses to a graph of the same text.
 */
#include "base/fail.h"
#include "graph/graph.h"
#include "op/op_list.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth) abort();
}

static char *text_of(const tg_graph *g)
{
    tg_strbuf out = {0};
    tg_graph_print(g, &out);
    return tg_strbuf_take(&out);
}

static void check_round_trip(const tg_graph *g)
{
    tg_graph *again = NULL;
    char *text = text_of(g);
    require(tg_graph_check(g) == TENG_OK && text != NULL);
    require(tg_graph_parse("again", text, &again) == TENG_OK);
    char *text_again = text_of(again);
    require(text_again && strcmp(text, text_again) == 0);
    tg_free(text);
    tg_free(text_again);
    tg_graph_destroy(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    require(tg_op_register_builtin() == TENG_OK);
    teng_error_clear();
    char *text = tg_strndup((const char *)data, size);
    tg_graph *g = NULL;
    require(text != NULL);
    if (tg_graph_parse("fuzz", text, &g) == TENG_OK)
        check_round_trip(g);
    else
        require(g == NULL && strncmp(teng_error(), "fuzz:", 5) == 0);
    tg_graph_destroy(&g);
    tg_free(text);
    teng_error_clear();
    return 0;
}
