/*
 * Reading token files. Opening checks the frame (sizes, tables, header checksum) and costs the tables' size;
 * the tokens themselves are checked when they are read, or all at once by verify.
 */
#include "data/token_file.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "data/token_format.h"

#include <string.h>

struct tg_token_file {
    char *path;
    tg_token_info info;
    uint32_t limit;            /* tokens must be below */
    tg_map map, index;         /* index: Megatron's .idx */
    const unsigned char *data; /* the tokens; NULL: in memory */
    uint32_t *tokens;
    uint64_t *ends, *bytes; /* of documents; own files: NULL, the table is read in place */
    uint8_t *score;
    const unsigned char *table, *blocks;
};

static const char *const names[] = {"auto", "teng", "nanogpt", "llmc", "megatron", "memory"};

const char *tg_token_format_name(tg_token_format format)
{
    return (unsigned)format < TG_TOKENS_FORMAT_COUNT ? names[format] : "unknown";
}

tg_token_format tg_token_format_parse(const char *name)
{
    for (int f = 0; f < TG_TOKENS_FORMAT_COUNT; f++) {
        if (f != TG_TOKENS_MEMORY && strcmp(names[f], name) == 0) return (tg_token_format)f;
    }
    return TG_TOKENS_FORMAT_COUNT;
}

static uint64_t load_u64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* ---- reading ---- */

static uint32_t token_at(const tg_token_file *f, uint64_t i)
{
    if (!f->data) return f->tokens[i];
    if (f->info.token_bytes == 1) return f->data[i];
    uint16_t small;
    uint32_t big;
    if (f->info.token_bytes == 2) {
        memcpy(&small, f->data + 2 * i, 2);
        return small;
    }
    memcpy(&big, f->data + 4 * i, 4);
    return big;
}

static teng_status bad_token(const tg_token_file *f, uint64_t pos)
{
    return tg_fail(
        TENG_FORMAT,
        "%s: token %llu is %u, the vocabulary has %u tokens (0 … %u): the file was made with another "
        "tokenizer, or its format is another than \"%s\" with %d bytes a token",
        f->path, (unsigned long long)pos, token_at(f, pos), f->limit, f->limit - 1,
        tg_token_format_name(f->info.format), f->info.token_bytes);
}

teng_status tg_token_file_read(const tg_token_file *f, uint64_t pos, uint64_t n, int32_t *out)
{
    if (pos > f->info.tokens || n > f->info.tokens - pos)
        return tg_fail(TENG_INVALID, "%s: tokens %llu … %llu were asked for, there are %llu", f->path,
                       (unsigned long long)pos, (unsigned long long)(pos + n),
                       (unsigned long long)f->info.tokens);
    uint32_t top = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t v = token_at(f, pos + i);
        top = v > top ? v : top;
        out[i] = (int32_t)v;
    }
    if (n == 0 || top < f->limit) return TENG_OK;
    while (token_at(f, pos) < f->limit)
        pos++;
    return bad_token(f, pos);
}

void tg_token_file_score(const tg_token_file *f, uint64_t pos, uint64_t n, uint8_t *out)
{
    if (f->score)
        memcpy(out, f->score + pos, n);
    else
        memset(out, 1, n);
}

void tg_token_file_document(const tg_token_file *f, uint64_t d, uint64_t *begin, uint64_t *end,
                            uint64_t *bytes)
{
    if (f->table) {
        const unsigned char *p = f->table + d * sizeof(tg_tok_document);
        *begin = load_u64(p);
        *end = load_u64(p + sizeof(tg_tok_document));
        *bytes = load_u64(p + sizeof(tg_tok_document) + 8) - load_u64(p + 8);
        return;
    }
    *begin = f->ends && d ? f->ends[d - 1] : 0;
    *end = f->ends ? f->ends[d] : f->info.tokens;
    *bytes = f->bytes ? f->bytes[d] : 0;
}

const tg_token_info *tg_token_file_info(const tg_token_file *f)
{
    return &f->info;
}

const char *tg_token_file_path(const tg_token_file *f)
{
    return f->path;
}

teng_status tg_token_file_verify(const tg_token_file *f)
{
    size_t total = f->data ? f->info.tokens * (size_t)f->info.token_bytes : 0;
    for (size_t at = 0; f->blocks && at < total; at += TG_TOK_BLOCK) {
        size_t n = total - at < TG_TOK_BLOCK ? total - at : TG_TOK_BLOCK;
        if (tg_hash64(f->data + at, n, at) != load_u64(f->blocks + at / TG_TOK_BLOCK * 8))
            return tg_fail(TENG_FORMAT,
                           "%s: corrupt: the checksum of the %zu bytes at offset %zu does not match", f->path,
                           n, at + sizeof(tg_tok_header));
    }
    for (uint64_t i = 0; i < f->info.tokens; i++) {
        if (token_at(f, i) >= f->limit) return bad_token(f, i);
    }
    return TENG_OK;
}

/* ---- opening, by format ---- */

static teng_status truncated(const tg_token_file *f, uint64_t want)
{
    return tg_fail(TENG_FORMAT,
                   "%s: truncated or corrupt: the %s header asks for %llu bytes, the file ends at offset %zu",
                   f->path, tg_token_format_name(f->info.format), (unsigned long long)want, f->map.size);
}

static teng_status check_table(const tg_token_file *f, const tg_tok_header *h)
{
    uint64_t token = 0, byte = 0;
    for (uint64_t d = 0; d <= h->documents; d++) {
        const unsigned char *p = f->table + d * sizeof(tg_tok_document);
        uint64_t t = load_u64(p), b = load_u64(p + 8);
        if (t < token || b < byte || (d == 0 && (t || b)) ||
            (d == h->documents && (t != h->tokens || b != h->text_bytes)))
            return tg_fail(TENG_FORMAT, "%s: corrupt: the document table is wrong at offset %zu", f->path,
                           (size_t)(p - f->map.data));
        token = t;
        byte = b;
    }
    return TENG_OK;
}

static teng_status open_teng(tg_token_file *f)
{
    tg_tok_header h;
    f->info.format = TG_TOKENS_TENG;
    if (f->map.size < sizeof h) return truncated(f, sizeof h);
    memcpy(&h, f->map.data, sizeof h);
    if (h.version != TG_TOK_VERSION)
        return tg_fail(TENG_UNSUPPORTED, "%s: version %u of the format; this program reads %d", f->path,
                       h.version, TG_TOK_VERSION);
    if (tg_hash64(&h, offsetof(tg_tok_header, header_hash), 0) != h.header_hash)
        return tg_fail(TENG_FORMAT, "%s: corrupt: the checksum of the header (offset 0) does not match",
                       f->path);
    uint64_t limit = (uint64_t)1 << 48; /* keeps the sums below from overflowing */
    if ((h.width != 2 && h.width != 4) || h.tokens > limit || h.documents > limit)
        return tg_fail(TENG_FORMAT, "%s: corrupt: impossible counts in the header (offset 0)", f->path);
    uint64_t bytes = h.tokens * h.width, table = (sizeof h + bytes + 7) & ~(uint64_t)7;
    uint64_t blocks = table + (h.documents + 1) * sizeof(tg_tok_document);
    uint64_t n_blocks = (bytes + TG_TOK_BLOCK - 1) / TG_TOK_BLOCK;
    if (h.table_at != table || h.blocks_at != blocks)
        return tg_fail(TENG_FORMAT, "%s: corrupt: impossible offsets in the header (offset 0)", f->path);
    if (f->map.size != blocks + n_blocks * 8) return truncated(f, blocks + n_blocks * 8);
    f->data = f->map.data + sizeof h;
    f->table = f->map.data + table;
    f->blocks = f->map.data + blocks;
    f->info = (tg_token_info){.format = TG_TOKENS_TENG,
                              .token_bytes = (int)h.width,
                              .vocab_size = h.vocab_size,
                              .tokens = h.tokens,
                              .documents = h.documents,
                              .text_bytes = h.text_bytes,
                              .tokenizer_hash = h.tokenizer_hash,
                              .eos = h.eos == TG_TOK_NO_EOS ? -1 : (int64_t)h.eos};
    if (tg_hash64(f->table, blocks - table, 0) != h.table_hash)
        return tg_fail(TENG_FORMAT,
                       "%s: corrupt: the checksum of the document table (offset %llu) does not match",
                       f->path, (unsigned long long)table);
    if (tg_hash64(f->blocks, n_blocks * 8, 0) != h.blocks_hash)
        return tg_fail(TENG_FORMAT,
                       "%s: corrupt: the checksum of the block checksums (offset %llu) does not match",
                       f->path, (unsigned long long)blocks);
    return check_table(f, &h);
}

/* Documents of a raw stream: each ends after an eos token. */
static teng_status find_documents(tg_token_file *f, int64_t eos)
{
    f->info.documents = 1;
    f->info.eos = eos;
    if (eos < 0) return TENG_OK;
    TG_VEC(uint64_t) ends = {0};
    for (uint64_t i = 0; i < f->info.tokens; i++) {
        if ((token_at(f, i) == (uint32_t)eos || i + 1 == f->info.tokens) && !tg_vec_push(&ends, i + 1)) {
            tg_vec_free(&ends);
            return TENG_MEMORY;
        }
    }
    f->info.documents = ends.len;
    f->ends = ends.data;
    return TENG_OK;
}

static teng_status open_llmc(tg_token_file *f, int64_t eos)
{
    int32_t h[3];
    f->info.format = TG_TOKENS_LLMC;
    if (f->map.size < TG_LLMC_HEADER) return truncated(f, TG_LLMC_HEADER);
    memcpy(h, f->map.data, sizeof h);
    bool wide = h[0] == TG_LLMC_U32;
    if (h[1] != (wide ? 7 : 1))
        return tg_fail(TENG_UNSUPPORTED, "%s: llm.c token file of version %d (offset 4); version %d is read",
                       f->path, h[1], wide ? 7 : 1);
    if (h[2] < 0)
        return tg_fail(TENG_FORMAT, "%s: corrupt: the header counts %d tokens (offset 8)", f->path, h[2]);
    f->info.token_bytes = wide ? 4 : 2;
    f->info.tokens = (uint64_t)h[2];
    uint64_t want = TG_LLMC_HEADER + f->info.tokens * (uint64_t)f->info.token_bytes;
    if (f->map.size != want) return truncated(f, want);
    f->data = f->map.data + TG_LLMC_HEADER;
    return find_documents(f, eos);
}

static teng_status open_raw(tg_token_file *f, const tg_token_open *o)
{
    f->info.format = TG_TOKENS_NANOGPT;
    f->info.token_bytes = o->vocab_limit > 65536 ? 4 : 2;
    if (ends_with(f->path, ".u32")) f->info.token_bytes = 4;
    if (ends_with(f->path, ".u16")) f->info.token_bytes = 2;
    size_t width = (size_t)f->info.token_bytes;
    if (f->map.size % width)
        return tg_fail(
            TENG_FORMAT,
            "%s: truncated: %zu bytes are no whole number of %zu-byte tokens; the last begins at offset %zu",
            f->path, f->map.size, width, f->map.size / width * width);
    f->info.tokens = f->map.size / width;
    f->data = f->map.data;
    return find_documents(f, o->eos);
}

/* Lengths and pointers of Megatron's sequences: one after the other without gaps, as its builder writes them.
 */
static teng_status read_sequences(tg_token_file *f, const char *idx, uint64_t sequences, uint64_t documents)
{
    const unsigned char *lengths = f->index.data + TG_MEGATRON_HEADER, *pointers = lengths + 4 * sequences,
                        *index = pointers + 8 * sequences;
    uint64_t d = 0, tokens = 0;
    f->ends = tg_alloc((documents + 1) * sizeof *f->ends);
    if (!f->ends) return TENG_MEMORY;
    for (uint64_t i = 0; i <= sequences; i++) {
        for (; d < documents && load_u64(index + 8 * d) == i; d++) {
            if (d) f->ends[d - 1] = tokens;
        }
        if (i == sequences) break;
        int32_t length;
        memcpy(&length, lengths + 4 * i, 4);
        if (length < 0 || load_u64(pointers + 8 * i) != tokens * (uint64_t)f->info.token_bytes)
            return tg_fail(TENG_FORMAT, "%s: sequence %llu (offset %zu) does not follow the one before it",
                           idx, (unsigned long long)i, (size_t)(pointers + 8 * i - f->index.data));
        tokens += (uint64_t)length;
    }
    if (d != documents || load_u64(index) != 0 || load_u64(index + 8 * (documents - 1)) != sequences)
        return tg_fail(TENG_FORMAT, "%s: the document index (offset %zu) does not go from 0 to %llu in order",
                       idx, (size_t)(index - f->index.data), (unsigned long long)sequences);
    f->info.documents = documents - 1;
    f->info.tokens = tokens;
    return TENG_OK;
}

static teng_status open_megatron(tg_token_file *f, const char *idx)
{
    f->info.format = TG_TOKENS_MEGATRON;
    TG_TRY(tg_map_open(idx, &f->index));
    const unsigned char *p = f->index.data;
    if (f->index.size < TG_MEGATRON_HEADER || memcmp(p, TG_MEGATRON_MAGIC, 9) != 0)
        return tg_fail(TENG_FORMAT, "%s: not a Megatron index: it does not begin with MMIDIDX", idx);
    if (load_u64(p + 9) != 1)
        return tg_fail(TENG_UNSUPPORTED, "%s: Megatron index of version %llu (offset 9); version 1 is read",
                       idx, (unsigned long long)load_u64(p + 9));
    switch (p[17]) {
    case 1:
        f->info.token_bytes = 1;
        break;
    case 8:
        f->info.token_bytes = 2;
        break;
    case 4:
        f->info.token_bytes = 4;
        break;
    default:
        return tg_fail(TENG_UNSUPPORTED,
                       "%s: dtype code %d (offset 17); 1 (u8), 4 (i32) and 8 (u16) are read", idx, p[17]);
    }
    uint64_t sequences = load_u64(p + 18), documents = load_u64(p + 26), limit = (uint64_t)1 << 48;
    uint64_t want = TG_MEGATRON_HEADER + (sequences < limit ? sequences * 12 : limit) +
                    (documents < limit ? documents * 8 : limit);
    if (f->index.size < want || (f->index.size != want && f->index.size != want + sequences))
        return tg_fail(
            TENG_FORMAT,
            "%s: truncated or corrupt: the header asks for %llu bytes, the file ends at offset %zu", idx,
            (unsigned long long)want, f->index.size);
    if (documents == 0) return tg_fail(TENG_FORMAT, "%s: the document index (offset 26) is empty", idx);
    TG_TRY(read_sequences(f, idx, sequences, documents));
    uint64_t bytes = f->info.tokens * (uint64_t)f->info.token_bytes;
    if (f->map.size < bytes) return truncated(f, bytes);
    f->data = f->map.data;
    return TENG_OK;
}

/* The .idx that belongs to path, if there is one: sets *bin too. NULL without error: not Megatron's. */
static teng_status megatron_names(const char *path, bool forced, char **bin, char **idx)
{
    size_t n = strlen(path);
    bool is_bin = ends_with(path, ".bin"), is_idx = ends_with(path, ".idx");
    if (is_bin || is_idx) n -= 4;
    *bin = tg_asprintf("%.*s.bin", (int)n, path);
    *idx = tg_asprintf("%.*s.idx", (int)n, path);
    if (!*bin || !*idx) return TENG_MEMORY;
    if (forced || is_idx) return TENG_OK;
    bool pair = tg_path_exists(*idx) && tg_path_exists(*bin) && (is_bin || !tg_path_exists(path));
    if (pair && is_bin) { /* an .idx of another program beside a raw .bin does not count */
        tg_map map;
        TG_TRY(tg_map_open(*idx, &map));
        pair = map.size >= 9 && memcmp(map.data, TG_MEGATRON_MAGIC, 9) == 0;
        tg_map_close(&map);
    }
    if (pair) return TENG_OK;
    tg_free(*bin);
    tg_free(*idx);
    *bin = *idx = NULL;
    return TENG_OK;
}

static teng_status open_by_content(tg_token_file *f, const tg_token_open *o, const char *idx)
{
    if (idx) return open_megatron(f, idx);
    int32_t first = 0;
    if (f->map.size >= 4) memcpy(&first, f->map.data, 4);
    bool own = f->map.size >= 8 && memcmp(f->map.data, TG_TOK_MAGIC, 8) == 0;
    bool llmc = first == TG_LLMC_U16 || first == TG_LLMC_U32;
    switch (o->format) {
    case TG_TOKENS_TENG:
        if (!own)
            return tg_fail(TENG_FORMAT, "%s: not a token file of teng: it does not begin with TENGTOK",
                           f->path);
        return open_teng(f);
    case TG_TOKENS_LLMC:
        if (!llmc)
            return tg_fail(TENG_FORMAT, "%s: not a token file of llm.c: it begins with %d, not with %d or %d",
                           f->path, first, TG_LLMC_U16, TG_LLMC_U32);
        return open_llmc(f, o->eos);
    case TG_TOKENS_NANOGPT:
        return open_raw(f, o);
    default:
        return own ? open_teng(f) : llmc ? open_llmc(f, o->eos) : open_raw(f, o);
    }
}

static teng_status check_limit(tg_token_file *f, const tg_token_open *o)
{
    f->limit = o->vocab_limit ? o->vocab_limit : f->info.vocab_size;
    if (f->limit == 0 || f->limit > INT32_MAX) f->limit = INT32_MAX;
    if (f->info.tokens == 0) return tg_fail(TENG_FORMAT, "%s: the file holds no token", f->path);
    if (o->verify) return tg_token_file_verify(f);
    tg_tok_header h;
    if (f->info.format != TG_TOKENS_TENG) return TENG_OK;
    memcpy(&h, f->map.data, sizeof h);
    if (h.max_token < f->limit) return TENG_OK;
    for (uint64_t i = 0; i < f->info.tokens; i++) {
        if (token_at(f, i) >= f->limit) return bad_token(f, i);
    }
    return TENG_OK;
}

teng_status tg_token_file_open(const char *path, const tg_token_open *options, tg_token_file **out)
{
    static const tg_token_open defaults = {.eos = -1};
    const tg_token_open *o = options ? options : &defaults;
    char *bin = NULL, *idx = NULL;
    *out = NULL;
    tg_token_file *f = tg_calloc(1, sizeof *f);
    if (!f) return TENG_MEMORY;
    f->info.eos = -1;
    teng_status status = TENG_OK;
    if (o->format == TG_TOKENS_AUTO || o->format == TG_TOKENS_MEGATRON)
        status = megatron_names(path, o->format == TG_TOKENS_MEGATRON, &bin, &idx);
    f->path = tg_strdup(bin ? bin : path);
    if (status == TENG_OK && !f->path) status = TENG_MEMORY;
    if (status == TENG_OK) status = tg_map_open(f->path, &f->map);
    if (status == TENG_OK) status = open_by_content(f, o, idx);
    if (status == TENG_OK) status = check_limit(f, o);
    tg_free(bin);
    tg_free(idx);
    if (status != TENG_OK) tg_token_file_close(&f);
    *out = f;
    return status;
}

teng_status tg_token_file_from_memory(const char *name, const tg_token_info *info, uint32_t *tokens,
                                      uint64_t *doc_ends, uint64_t *doc_bytes, uint8_t *score,
                                      tg_token_file **out)
{
    *out = NULL;
    tg_token_file *f = tg_calloc(1, sizeof *f);
    char *path = tg_strdup(name);
    if (!f || !path) {
        tg_free(f);
        tg_free(path);
        tg_free(tokens);
        tg_free(doc_ends);
        tg_free(doc_bytes);
        tg_free(score);
        return TENG_MEMORY;
    }
    f->path = path;
    f->info = *info;
    f->info.format = TG_TOKENS_MEMORY;
    f->info.token_bytes = 4;
    f->tokens = tokens;
    f->ends = doc_ends;
    f->bytes = doc_bytes;
    f->score = score;
    f->limit = info->vocab_size ? info->vocab_size : INT32_MAX;
    *out = f;
    return TENG_OK;
}

void tg_token_file_close(tg_token_file **file)
{
    tg_token_file *f = *file;
    if (!f) return;
    tg_map_close(&f->map);
    tg_map_close(&f->index);
    tg_free(f->tokens);
    tg_free(f->ends);
    tg_free(f->bytes);
    tg_free(f->score);
    tg_free(f->path);
    tg_free(f);
    *file = NULL;
}
