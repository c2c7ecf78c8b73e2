/*
 * safetensors: the tensor files that Hugging Face, PyTorch and we exchange
 * (github.com/huggingface/safetensors). Reading maps the file and checks every byte of the header before a
 * pointer is given out; writing streams. A set of weights is one file, or several with an index. This file
 * knows nothing of models, runs or checkpoints.
 */
#ifndef TG_CKPT_SAFETENSORS_H
#define TG_CKPT_SAFETENSORS_H

#include "base/json.h"
#include "mesh/box_copy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TG_ST_HEADER_MAX 100000000u /* bytes of JSON; the reference reader has the same limit */

/* Which part of a whole tensor an item is. */
typedef struct tg_ckpt_part {
    teng_desc whole;
    tg_box box;
} tg_ckpt_part;
/* A tensor to be written; all pointers are the caller's. */
typedef struct tg_ckpt_item {
    const char *name; /* unique in its group */
    teng_desc desc;
    const void *data; /* host memory, row-major, tg_desc_bytes(&desc) bytes */
    const char
        *group; /* stem of the file it goes to: "model", "optimizer", ... Only checkpoints look at it */
    const tg_ckpt_part
        *part; /* desc is the shape of a part; NULL: of the whole. Only checkpoints look at it */
    /* data NULL: writes tg_desc_bytes(&desc) bytes to `to` when the file has come to this tensor, so that no
     * more than one of them is in memory. Of checkpoints only for those that are written at once. */
    teng_status (*fetch)(void *user, const struct tg_ckpt_item *item, void *to);
    void *user;
} tg_ckpt_item;

/* A part of a tensor in one of the files of a sharded checkpoint. */
typedef struct tg_st_piece {
    const void *data;
    tg_box box;
} tg_st_piece;
/* A tensor that was read. Pointers live until the file or set is closed. */
typedef struct tg_st_tensor {
    const char *name;
    teng_desc desc;
    const void *data;          /* aligned to the element size; read only. NULL: it lies in pieces */
    const char *file;          /* path it came from; of pieces, one of them */
    uint64_t offset;           /* of its first byte in that file */
    const tg_st_piece *pieces; /* that together are the whole, no element twice */
    size_t n_pieces;
} tg_st_tensor;

/* ---- one file ---- */
typedef struct tg_st_file tg_st_file;
/* Checks: header length, JSON, dtypes, shapes, offsets, overlaps, holes, file length, duplicate names. Errors
 * name the file, the tensor and the offset. Element types and ranks that teng lacks are TENG_UNSUPPORTED. */
teng_status tg_st_open(const char *path, tg_st_file **out);
/* The same over bytes in memory, which must outlive the result; `name` stands for the path in errors. */
teng_status tg_st_open_memory(const char *name, const void *data, size_t size, tg_st_file **out);
void tg_st_close(tg_st_file **file);
size_t tg_st_count(const tg_st_file *file);
const tg_st_tensor *tg_st_at(const tg_st_file *file, size_t i);           /* by rising offset */
const tg_st_tensor *tg_st_find(const tg_st_file *file, const char *name); /* NULL when absent */
const char *tg_st_metadata(const tg_st_file *file, const char *key);      /* NULL when absent */

/* What was written: for the list of hashes in a checkpoint. */
typedef struct tg_st_digest {
    uint64_t bytes; /* of the file */
    uint64_t xxh3;  /* XXH3, 64 bits, seed 0, of the whole file */
} tg_st_digest;
/* Writes one file, atomically and fsynced. Tensors are ordered as the reference writer does: by element size
 * falling, then by name, so that equal items give equal bytes and every tensor is aligned. metadata: object
 * of strings or NULL. digest may be NULL. */
teng_status tg_st_write(const char *path, const tg_ckpt_item *items, size_t n, const json_t *metadata,
                        tg_st_digest *digest);
/* Writes dir/<stem>.safetensors, or, when the tensors exceed max_shard_bytes (0: no limit),
 * dir/<stem>-0000i-of-0000n .safetensors, filled in the order of items, and
 * dir/<stem>.safetensors.index.json. The folder must exist. */
teng_status tg_st_write_sharded(const char *dir, const char *stem, const tg_ckpt_item *items, size_t n,
                                uint64_t max_shard_bytes, const json_t *metadata);

/* Copies a tensor to dst, whose description is `want`: equal shape; another float type is converted, any
 * other difference of types is an error that names the tensor and both descriptions. */
teng_status tg_st_read(const tg_st_tensor *t, const teng_desc *want, void *dst);
/* A box of the whole, of which `whole` is the shape and element type that is wanted; dst gets the box
 * row-major. Types as above. */
teng_status tg_st_read_box(const tg_st_tensor *t, const teng_desc *whole, const tg_box *box, void *dst);

/* Whether tg_st_read would take it. */
teng_status tg_st_check(const tg_st_tensor *t, const teng_desc *want);
/* Its values are not needed for now: of a file that is larger than memory no more stays than is read. Not of
 * tg_st_open_memory. */
void tg_st_forget(const tg_st_tensor *t);

/* ---- weights: one file, or an index with its shards ---- */
typedef struct tg_weights tg_weights;
/* path: a .safetensors file, an index (.json), or a folder that holds model.safetensors,
 * model.safetensors.index.json or a checkpoint. Errors by name: shard missing, tensor listed and not in its
 * shard, in a shard and not listed, in two shards. */
teng_status tg_weights_open(const char *path, tg_weights **out);
void tg_weights_close(tg_weights **weights);
size_t tg_weights_count(const tg_weights *weights);
const tg_st_tensor *tg_weights_at(const tg_weights *weights, size_t i);
const tg_st_tensor *tg_weights_find(const tg_weights *weights, const char *name); /* NULL when absent */

#endif
