/* Checks of token ids and labels; see ids.h. */
#include "op/ids.h"

#include "base/fail.h"

#include <inttypes.h>

static bool inside(int32_t id, int64_t vocab)
{
    return id >= 0 && id < vocab;
}

teng_status tg_ids_check(const int32_t *ids, int64_t n, int64_t vocab)
{
    int64_t good = 0;
    for (int64_t p = 0; p < n; p++)
        good += inside(ids[p], vocab);
    if (good == n) return TENG_OK;
    int64_t p = 0;
    while (inside(ids[p], vocab))
        p++;
    return tg_fail(TENG_INVALID,
                   "the id at position %" PRId64 " is %" PRId32 ", the vocabulary has %" PRId64
                   " entries (ids 0 to %" PRId64 "); the data were made with another tokenizer",
                   p, ids[p], vocab, vocab - 1);
}

teng_status tg_labels_check(const int32_t *labels, int64_t n, int64_t vocab, int64_t ignore, int64_t *valid)
{
    int64_t good = 0, skipped = 0;
    for (int64_t p = 0; p < n; p++) {
        const bool skip = labels[p] == ignore;
        skipped += skip;
        good += !skip && inside(labels[p], vocab);
    }
    *valid = good;
    if (good + skipped == n) return TENG_OK;
    int64_t p = 0;
    while (labels[p] == ignore || inside(labels[p], vocab))
        p++;
    return tg_fail(TENG_INVALID,
                   "the label at position %" PRId64 " is %" PRId32 "; it must be 0 to %" PRId64
                   " (the logits have V = %" PRId64 " entries) or ignore_index, which is %" PRId64,
                   p, labels[p], vocab - 1, vocab, ignore);
}

double tg_labels_divisor(const teng_kernel_args *args, int i, int64_t own)
{
    return args->call->n_in > i ? (double)*(const float *)args->in[i] : (double)own;
}

teng_status tg_positions_check(const int32_t *positions, int64_t n, int64_t room)
{
    for (int64_t t = 0; t < n; t++)
        if (!inside(positions[t], room))
            return tg_fail(TENG_INVALID,
                           "row %" PRId64 " has position %" PRId32 "; there is room for %" PRId64
                           " (0 to %" PRId64 ")",
                           t, positions[t], room, room - 1);
    return TENG_OK;
}
