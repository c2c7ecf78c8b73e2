/*
 * Layouts of token files, shared by reader and writer. All numbers little-endian, as the machines teng runs
 * on.
 *
 * teng's own file: a header of 128 bytes | tokens (u16 or u32) | zeros to a multiple of 8 | document table:
 * (documents + 1) × {u64 first token, u64 first text byte} | one checksum (u64) per MiB of tokens. The file
 * ends there.
 */
#ifndef TG_DATA_TOKEN_FORMAT_H
#define TG_DATA_TOKEN_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define TG_TOK_MAGIC "TENGTOK" /* with its NUL: 8 bytes */
#define TG_TOK_VERSION 1
#define TG_TOK_BLOCK ((size_t)1 << 20)
#define TG_TOK_NO_EOS UINT32_MAX

typedef struct tg_tok_header {
    char magic[8];
    uint32_t version, width; /* bytes of a token: 2 or 4 */
    uint32_t vocab_size;
    uint32_t eos; /* ends each document; TG_TOK_NO_EOS: none */
    uint64_t tokenizer_hash;
    uint64_t tokens, documents, text_bytes;
    uint64_t table_at, blocks_at;     /* offsets of the document table and of the checksums */
    uint64_t table_hash, blocks_hash; /* of those two */
    uint32_t max_token, reserved;
    uint64_t zero[3];
    uint64_t header_hash; /* of the 120 bytes before */
} tg_tok_header;
static_assert(sizeof(tg_tok_header) == 128, "the header is 128 bytes");

typedef struct tg_tok_document {
    uint64_t token, byte;
} tg_tok_document;

#define TG_LLMC_U16 20240520 /* version 1, u16: GPT-2 */
#define TG_LLMC_U32 20240801 /* version 7, u32: Llama 3 */
#define TG_LLMC_HEADER 1024  /* bytes: i32[256] {magic, version, tokens} */

#define TG_MEGATRON_MAGIC "MMIDIDX\0" /* 9 bytes with the NUL of C */
#define TG_MEGATRON_HEADER 34         /* magic, u64 version 1, u8 dtype, u64 sequences, u64 documents + 1 */

#endif
