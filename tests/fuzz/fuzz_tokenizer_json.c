/* tokenizer.json from anywhere: it is read or refused, and what is read can encode and decode. */
#include "base/mem.h"
#include "data/tokenizer.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "The cat's 123  hats\n\n caf\xc3\xa9 \xff\xe2\x96\x81x <|endoftext|> \xe4\xbd\xa0\xe5\xa5\xbd!";
    tg_tokenizer *t = NULL;
    teng_error_clear();
    if (tg_tokenizer_parse("fuzz", (const char *)data, size, &t) != TENG_OK) {
        if (t || !*teng_error()) __builtin_trap(); /* refused without a word */
        return 0;
    }
    tg_ids ids = {0};
    tg_strbuf out = {0};
    if (tg_tokenizer_encode(t, text, sizeof text - 1, TG_ENCODE_SPECIAL | TG_ENCODE_TEMPLATE, &ids) ==
            TENG_OK &&
        tg_tokenizer_decode(t, ids.data, ids.len, false, &out) != TENG_OK)
        __builtin_trap(); /* it gave an id it does not know */
    json_decref(tg_tokenizer_info_json(t));
    tg_strbuf_free(&out);
    tg_vec_free(&ids);
    tg_tokenizer_destroy(&t);
    return 0;
}
