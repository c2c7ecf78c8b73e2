/* Fuzz target: any bytes as a safetensors file. Either they are refused with a message that names the file,
 * or the tensors tile the data exactly, are found by their names and can be read to the last byte. */
#include "base/fail.h"
#include "base/mem.h"
#include "ckpt/safetensors.h"
#include "tensor/desc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth) abort();
}

static void read_all(const tg_st_file *f, const uint8_t *data, size_t size)
{
    uint64_t header, at;
    memcpy(&header, data, 8);
    at = 8 + header;
    for (size_t i = 0; i < tg_st_count(f); i++) {
        const tg_st_tensor *t = tg_st_at(f, i);
        size_t bytes = tg_desc_bytes(&t->desc);
        require(tg_st_find(f, t->name) == t && t->offset == at);
        require((uintptr_t)t->data % (uintptr_t)teng_dtype_size(t->desc.dtype) == 0);
        if (bytes) require(memcmp(t->data, data + at, bytes) == 0);
        at += bytes;
    }
    require(at == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_st_file *f;
    teng_error_clear();
    if (tg_st_open_memory("fuzz.safetensors", data, size, &f) == TENG_OK)
        read_all(f, data, size);
    else
        require(f == NULL && strncmp(teng_error(), "fuzz.safetensors", 16) == 0);
    tg_st_close(&f);
    teng_error_clear();
    return 0;
}
