/* What the parts of the checkpoint room share: names of folders, the list of them, the hash in state.json. */
#ifndef TG_CKPT_CKPT_LAYOUT_H
#define TG_CKPT_CKPT_LAYOUT_H

#include "base/json.h"
#include "base/vec.h"
#include "teng/status.h"

#include <stdbool.h>
#include <stdint.h>

#define TG_CKPT_VERSION 1
#define TG_CKPT_VERSION_PARTS 2 /* written by several ranks */

typedef TG_VEC(int64_t) tg_ckpt_steps;

/* root/step-00000040<suffix>, heap string. */
char *tg_ckpt_folder(const char *root, int64_t step, const char *suffix);
/* True for exactly the names that tg_ckpt_folder makes with that suffix. */
bool tg_ckpt_parse_name(const char *name, const char *suffix, int64_t *step);
/* Steps of the folders with that suffix, rising; an absent root has none. Free with tg_vec_free. */
teng_status tg_ckpt_list(const char *root, const char *suffix, tg_ckpt_steps *out);

/* Hash of a state object: XXH3 of its compact text without checkpoint.xxh3, as 16 hex digits in text (17
 * bytes). */
teng_status tg_ckpt_state_hash(const json_t *state, char *text);
/* Size and hash of a file's bytes, the hash as text (17 bytes). */
teng_status tg_ckpt_file_hash(const char *path, uint64_t *bytes, char *text);

/* Reads path/state.json and verifies it and the sizes (hashes too when asked) of the files it lists. *state
 * is a new reference. */
teng_status tg_ckpt_check(const char *path, bool hashes, json_t **state);

#endif
