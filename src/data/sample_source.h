/*
 * Samples by number: the loader's view of its files. Sample i of an epoch (before shuffling) is a fixed piece
 * of the stream, so any sample can be read at any time. Reading uses a scratch of the caller and nothing else
 * that changes.
 */
#ifndef TG_DATA_SAMPLE_SOURCE_H
#define TG_DATA_SAMPLE_SOURCE_H

#include "data/loader.h"

typedef struct tg_sample_source tg_sample_source;
teng_status tg_sample_source_open(const tg_loader_options *options, tg_sample_source **out);
void tg_sample_source_close(tg_sample_source **s);

uint64_t tg_sample_source_count(const tg_sample_source *s); /* samples of an epoch */
void tg_sample_source_info(const tg_sample_source *s,
                           tg_loader_info *info); /* tokens, documents, text_bytes */
int64_t tg_sample_source_eos(const tg_sample_source *s);
/* Positions of sample i that have a label. */
int64_t tg_sample_source_length(const tg_sample_source *s, uint64_t i);

typedef struct tg_sample_scratch {
    int32_t *tokens; /* [longest + 1] */
    uint8_t *score;  /* [longest + 1] */
} tg_sample_scratch;
/* CROSS: `seq` tokens from `offset` within sample i; DOCUMENT: offset 0. Fills tokens[seq] and labels[seq],
 * padding with pad and TG_LABEL_IGNORE; adds the labels that count to *valid. */
teng_status tg_sample_source_read(const tg_sample_source *s, const tg_sample_scratch *scratch, uint64_t i,
                                  int64_t offset, int64_t seq, int32_t pad, int32_t *tokens, int32_t *labels,
                                  int64_t *valid);

#endif
