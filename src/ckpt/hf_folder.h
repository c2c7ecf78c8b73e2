/*
 * A model folder in the layout of Hugging Face: config.json, generation_config.json, tokenizer files, and
 * model.safetensors (or shards with an index). Here the folder is files; what the keys mean is known to nn/.
 */
#ifndef TG_CKPT_HF_FOLDER_H
#define TG_CKPT_HF_FOLDER_H

#include "ckpt/safetensors.h"

/* dir/config.json, dir/generation_config.json as objects, all keys kept in their order. The second gives NULL
 * when the file is absent. New references. */
teng_status tg_hf_read_config(const char *dir, json_t **out);
teng_status tg_hf_read_generation_config(const char *dir, json_t **out);

/* What goes into a folder; everything is the caller's. */
typedef struct tg_hf_folder {
    const json_t *config;            /* required object */
    const json_t *generation_config; /* object, or NULL: that of tokenizer_dir */
    const tg_ckpt_item *items;       /* groups are ignored: all go to model*.safetensors */
    size_t item_count;
    uint64_t shard_bytes;           /* largest weights file; 0: one file */
    const json_t *metadata;         /* of the safetensors files; NULL: {"format":"pt"} */
    const char *tokenizer_dir;      /* its side files are copied; NULL: none */
    const char *const *extra_files; /* paths, copied under their last name */
    size_t extra_count;
} tg_hf_folder;
/* Builds the folder beside dir (dir.saving), fsyncs, then exchanges the two: readers see the old folder or
 * the new one. Files of the old folder that are neither weights nor written anew are kept. A folder that
 * holds something else than a model (not empty, no config.json) is refused. */
teng_status tg_hf_save(const char *dir, const tg_hf_folder *folder);

/* Names of the files that go along with a model as they are: of the tokenizer, the chat template, settings of
 * generation. NULL-terminated. */
extern const char *const tg_hf_side_files[];
/* Copies those that are there. */
teng_status tg_hf_copy_side_files(const char *from_dir, const char *to_dir);
/* The element type of the weights in a configuration, under the key that it has ("torch_dtype") or the new
 * one ("dtype"). */
teng_status tg_hf_set_dtype(json_t *config, teng_dtype dtype);

#endif
