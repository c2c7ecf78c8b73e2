/* Edited copies of the reference cases in tests/data/golden, in a scratch folder: what a difference does is
 * tested on them. Failures fail the test. */
#ifndef TG_TESTS_GOLDEN_EDIT_H
#define TG_TESTS_GOLDEN_EDIT_H

#include "ckpt/safetensors.h"

/* Set-up and tear-down of a cmocka group: the scratch folder. */
int golden_scratch(void **state);
int golden_remove_scratch(void **state);
extern char golden_dir[]; /* its path */

/* Heap strings. */
char *golden_path(const char *family, const char *file);
/* Changes the tensors, all copies that may be written to, or their number (there is room for one more). */
typedef void golden_edit(tg_ckpt_item *items, size_t *n);
/* <scratch>/<to> from a file of tensors. */
char *golden_edited(const char *from, const char *to, golden_edit *change);
/* The scratch folder as a model folder: the family's config.json with one text replaced (old NULL: none) by
 * one that is not longer, and edited weights. */
char *golden_edited_model(const char *family, golden_edit *change, const char *old, const char *now);
tg_ckpt_item *golden_item(tg_ckpt_item *items, size_t n, const char *name);
void *golden_values(tg_ckpt_item *items, size_t n, const char *name);
void golden_same(tg_ckpt_item *items, size_t *n); /* no change */

#endif
