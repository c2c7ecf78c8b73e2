/* Writing token files: tokens stream out in blocks of 1 MiB; tables and the header follow at commit. */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "data/token_file.h"
#include "data/token_format.h"

#include <string.h>

struct tg_token_writer {
    tg_writer *file;
    char *path;
    tg_token_info info;
    unsigned char *block;
    size_t used;
    uint32_t max_token;
    TG_VEC(tg_tok_document) documents; /* starts; the last is the end */
    TG_VEC(uint64_t) blocks;
};

static int width_of(const tg_token_info *info)
{
    if (info->format == TG_TOKENS_MEGATRON) return info->vocab_size < 65500 ? 2 : 4; /* its own rule */
    return info->vocab_size && info->vocab_size <= 65536 ? 2 : 4;
}

teng_status tg_token_writer_open(const char *path, const tg_token_info *info, tg_token_writer **out)
{
    *out = NULL;
    if (info->format == TG_TOKENS_AUTO || info->format >= TG_TOKENS_MEMORY)
        return tg_fail(TENG_INVALID,
                       "%s: cannot write tokens as \"%s\"; teng, nanogpt, llmc and megatron can be written",
                       path, tg_token_format_name(info->format));
    tg_token_writer *w = tg_calloc(1, sizeof *w);
    if (!w) return TENG_MEMORY;
    w->info = *info;
    w->info.token_bytes = width_of(info);
    w->info.tokens = w->info.documents = w->info.text_bytes = 0;
    w->path = tg_strdup(path);
    w->block = tg_alloc(TG_TOK_BLOCK);
    teng_status status =
        w->path && w->block && tg_vec_push(&w->documents, (tg_tok_document){0}) ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) status = tg_writer_open(path, &w->file);
    static const unsigned char zeros[TG_LLMC_HEADER];
    size_t header = info->format == TG_TOKENS_TENG   ? sizeof(tg_tok_header)
                    : info->format == TG_TOKENS_LLMC ? TG_LLMC_HEADER
                                                     : 0;
    if (status == TENG_OK) status = tg_writer_put(w->file, zeros, header);
    if (status != TENG_OK) tg_token_writer_abort(&w);
    *out = w;
    return status;
}

static teng_status flush(tg_token_writer *w)
{
    if (w->used == 0) return TENG_OK;
    uint64_t at = (uint64_t)w->blocks.len * TG_TOK_BLOCK;
    if (!tg_vec_push(&w->blocks, tg_hash64(w->block, w->used, at))) return TENG_MEMORY;
    TG_TRY(tg_writer_put(w->file, w->block, w->used));
    w->used = 0;
    return TENG_OK;
}

teng_status tg_token_writer_add(tg_token_writer *w, const uint32_t *tokens, size_t n)
{
    size_t width = (size_t)w->info.token_bytes;
    for (size_t i = 0; i < n; i++) {
        uint32_t v = tokens[i];
        if (v > w->max_token) w->max_token = v;
        if (w->info.vocab_size && v >= w->info.vocab_size)
            return tg_fail(TENG_INVALID, "%s: token %llu is %u, the vocabulary has %u", w->path,
                           (unsigned long long)(w->info.tokens + i), v, w->info.vocab_size);
        uint16_t small = (uint16_t)v;
        memcpy(w->block + w->used, width == 2 ? (const void *)&small : (const void *)&v, width);
        w->used += width;
        if (w->used == TG_TOK_BLOCK) TG_TRY(flush(w));
    }
    w->info.tokens += n;
    return TENG_OK;
}

teng_status tg_token_writer_end(tg_token_writer *w, uint64_t text_bytes)
{
    w->info.text_bytes += text_bytes;
    w->info.documents++;
    return tg_vec_push(&w->documents, ((tg_tok_document){w->info.tokens, w->info.text_bytes})) ? TENG_OK
                                                                                               : TENG_MEMORY;
}

const tg_token_info *tg_token_writer_info(const tg_token_writer *w)
{
    return &w->info;
}

static teng_status finish_teng(tg_token_writer *w)
{
    tg_tok_header h = {.magic = TG_TOK_MAGIC,
                       .version = TG_TOK_VERSION,
                       .width = (uint32_t)w->info.token_bytes,
                       .vocab_size = w->info.vocab_size,
                       .eos = w->info.eos < 0 ? TG_TOK_NO_EOS : (uint32_t)w->info.eos,
                       .tokenizer_hash = w->info.tokenizer_hash,
                       .tokens = w->info.tokens,
                       .documents = w->info.documents,
                       .text_bytes = w->info.text_bytes,
                       .max_token = w->max_token};
    static const unsigned char zeros[8];
    TG_TRY(tg_writer_put(w->file, zeros, (8 - tg_writer_offset(w->file) % 8) % 8));
    size_t table = w->documents.len * sizeof *w->documents.data,
           blocks = w->blocks.len * sizeof *w->blocks.data;
    h.table_at = tg_writer_offset(w->file);
    h.blocks_at = h.table_at + table;
    h.table_hash = tg_hash64(w->documents.data, table, 0);
    h.blocks_hash = tg_hash64(blocks ? (const void *)w->blocks.data : "", blocks, 0);
    h.header_hash = tg_hash64(&h, offsetof(tg_tok_header, header_hash), 0);
    TG_TRY(tg_writer_put(w->file, w->documents.data, table));
    TG_TRY(tg_writer_put(w->file, w->blocks.data, blocks));
    TG_TRY(tg_writer_seek(w->file, 0));
    return tg_writer_put(w->file, &h, sizeof h);
}

static teng_status finish_llmc(tg_token_writer *w)
{
    if (w->info.tokens > INT32_MAX)
        return tg_fail(TENG_UNSUPPORTED, "%s: %llu tokens; a file of llm.c holds at most %d", w->path,
                       (unsigned long long)w->info.tokens, INT32_MAX);
    bool wide = w->info.token_bytes == 4;
    int32_t h[3] = {wide ? TG_LLMC_U32 : TG_LLMC_U16, wide ? 7 : 1, (int32_t)w->info.tokens};
    TG_TRY(tg_writer_seek(w->file, 0));
    return tg_writer_put(w->file, h, sizeof h);
}

/* One sequence a document. */
static teng_status write_idx(tg_token_writer *w, tg_writer *idx)
{
    uint64_t n = w->info.documents, head[3] = {1, n, n + 1};
    unsigned char dtype = w->info.token_bytes == 2 ? 8 : 4;
    TG_TRY(tg_writer_put(idx, TG_MEGATRON_MAGIC, 9));
    TG_TRY(tg_writer_put(idx, head, 8));
    TG_TRY(tg_writer_put(idx, &dtype, 1));
    TG_TRY(tg_writer_put(idx, head + 1, 16));
    for (uint64_t d = 0; d < n; d++) {
        uint64_t length = w->documents.data[d + 1].token - w->documents.data[d].token;
        int32_t small = (int32_t)length;
        if (length > INT32_MAX)
            return tg_fail(TENG_UNSUPPORTED,
                           "%s: document %llu has %llu tokens; Megatron's index holds at most %d", w->path,
                           (unsigned long long)d, (unsigned long long)length, INT32_MAX);
        TG_TRY(tg_writer_put(idx, &small, 4));
    }
    for (uint64_t d = 0; d < n; d++) {
        uint64_t pointer = w->documents.data[d].token * (uint64_t)w->info.token_bytes;
        TG_TRY(tg_writer_put(idx, &pointer, 8));
    }
    for (uint64_t d = 0; d <= n; d++)
        TG_TRY(tg_writer_put(idx, &d, 8));
    return TENG_OK;
}

static teng_status finish_megatron(tg_token_writer *w)
{
    size_t n = strlen(w->path);
    if (n > 4 && strcmp(w->path + n - 4, ".bin") == 0) n -= 4;
    char *name = tg_asprintf("%.*s.idx", (int)n, w->path);
    tg_writer *idx = NULL;
    teng_status status = name ? tg_writer_open(name, &idx) : TENG_MEMORY;
    if (status == TENG_OK) status = write_idx(w, idx);
    if (status == TENG_OK) status = tg_writer_commit(&w->file);
    if (status == TENG_OK)
        status = tg_writer_commit(&idx);
    else
        tg_writer_abort(&idx);
    tg_free(name);
    return status;
}

teng_status tg_token_writer_commit(tg_token_writer **out)
{
    tg_token_writer *w = *out;
    teng_status status = TENG_OK;
    /* Tokens after the last document end belong to a document too. */
    if (w->info.tokens > w->documents.data[w->documents.len - 1].token) status = tg_token_writer_end(w, 0);
    if (status == TENG_OK) status = flush(w);
    if (status == TENG_OK && w->info.format == TG_TOKENS_TENG) status = finish_teng(w);
    if (status == TENG_OK && w->info.format == TG_TOKENS_LLMC) status = finish_llmc(w);
    if (status == TENG_OK && w->info.format == TG_TOKENS_MEGATRON) status = finish_megatron(w);
    if (status == TENG_OK && w->file) status = tg_writer_commit(&w->file);
    tg_token_writer_abort(out);
    return status;
}

void tg_token_writer_abort(tg_token_writer **out)
{
    tg_token_writer *w = *out;
    if (!w) return;
    if (w->file) tg_writer_abort(&w->file);
    tg_vec_free(&w->documents);
    tg_vec_free(&w->blocks);
    tg_free(w->block);
    tg_free(w->path);
    tg_free(w);
    *out = NULL;
}
