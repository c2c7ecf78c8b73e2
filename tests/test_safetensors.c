/* safetensors: round trips, every complaint of the reader, mutation of every header byte, shards and their
 * index. */
#include "ckpt/safetensors.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int enter(void **state)
{
    (void)state;
    return scratch_enter("test_safetensors");
}

static int leave(void **state)
{
    (void)state;
    return scratch_leave();
}

static const float weights[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const uint16_t halves[3] = {0x3f80, 0x7fc0, 0x8000};
static const int64_t ids[2] = {-5, INT64_MAX};
static const uint8_t flags[3] = {1, 0, 1};

static size_t sample(tg_ckpt_item *items)
{
    size_t n = 0;
    items[n++] =
        (tg_ckpt_item){.name = "z.flags", .desc = tg_desc_make(TENG_BOOL, 1, (int64_t[]){3}), .data = flags};
    items[n++] = (tg_ckpt_item){
        .name = "b.weight", .desc = tg_desc_make(TENG_F32, 2, (int64_t[]){2, 3}), .data = weights};
    items[n++] =
        (tg_ckpt_item){.name = "a.half", .desc = tg_desc_make(TENG_BF16, 1, (int64_t[]){3}), .data = halves};
    items[n++] = (tg_ckpt_item){
        .name = "c.ids \"\xc3\xa9\"", .desc = tg_desc_make(TENG_I64, 1, (int64_t[]){2}), .data = ids};
    items[n++] = (tg_ckpt_item){.name = "scalar", .desc = tg_desc_make(TENG_F32, 0, NULL), .data = weights};
    items[n++] =
        (tg_ckpt_item){.name = "empty", .desc = tg_desc_make(TENG_F32, 2, (int64_t[]){0, 4}), .data = NULL};
    return n;
}

static void round_trip(void **state)
{
    (void)state;
    tg_ckpt_item items[8];
    size_t n = sample(items), size;
    json_t *meta = json_pack("{s:s, s:s}", "format", "pt", "note", "x");
    tg_st_digest digest;
    assert_int_equal(tg_st_write(in_dir("a.safetensors"), items, n, meta, &digest), TENG_OK);
    json_decref(meta);
    tg_st_file *f;
    assert_int_equal(tg_st_open(in_dir("a.safetensors"), &f), TENG_OK);
    assert_int_equal(tg_st_count(f), n);
    assert_string_equal(tg_st_metadata(f, "format"), "pt");
    assert_string_equal(tg_st_metadata(f, "note"), "x");
    assert_null(tg_st_metadata(f, "absent"));
    for (size_t i = 0; i < n; i++) {
        const tg_st_tensor *t = tg_st_find(f, items[i].name);
        assert_non_null(t);
        assert_true(tg_desc_equal(&t->desc, &items[i].desc));
        assert_int_equal((uintptr_t)t->data % (uintptr_t)teng_dtype_size(t->desc.dtype), 0);
        if (items[i].data) assert_memory_equal(t->data, items[i].data, tg_desc_bytes(&t->desc));
    }
    assert_null(tg_st_find(f, "absent"));
    assert_null(tg_st_at(f, n));
    assert_string_equal(tg_st_at(f, 0)->name, items[3].name); /* eight-byte elements first */
    assert_string_equal(tg_st_at(f, n - 1)->name, "z.flags");
    assert_int_equal(tg_st_at(f, 0)->offset % 8, 0);
    tg_st_close(&f);
    assert_null(f);

    /* the digest is that of the file; another order of items gives the same bytes */
    char *bytes, *again;
    assert_int_equal(tg_file_read(in_dir("a.safetensors"), &bytes, &size), TENG_OK);
    assert_int_equal(digest.bytes, size);
    assert_true(digest.xxh3 == tg_hash64(bytes, size, 0));
    tg_ckpt_item first = items[0];
    items[0] = items[n - 1];
    items[n - 1] = first;
    meta = json_pack("{s:s, s:s}", "format", "pt", "note", "x");
    assert_int_equal(tg_st_write(in_dir("b.safetensors"), items, n, meta, NULL), TENG_OK);
    json_decref(meta);
    assert_int_equal(tg_file_read(in_dir("b.safetensors"), &again, NULL), TENG_OK);
    assert_memory_equal(bytes, again, size);
    tg_free(bytes);
    tg_free(again);
}

static void no_tensors(void **state)
{
    (void)state;
    tg_st_file *f;
    assert_int_equal(tg_st_write(in_dir("e.safetensors"), NULL, 0, NULL, NULL), TENG_OK);
    assert_int_equal(tg_st_open(in_dir("e.safetensors"), &f), TENG_OK);
    assert_int_equal(tg_st_count(f), 0);
    tg_st_close(&f);
}

static void large_tensor(void **state)
{
    (void)state;
    int64_t n = (3 << 20) / 4 + 5; /* several blocks and a rest */
    float *x = tg_alloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)i;
    tg_ckpt_item item = {.name = "x", .desc = tg_desc_make(TENG_F32, 1, &n), .data = x};
    tg_st_digest digest;
    assert_int_equal(tg_st_write(in_dir("l.safetensors"), &item, 1, NULL, &digest), TENG_OK);
    tg_map map;
    assert_int_equal(tg_map_open(in_dir("l.safetensors"), &map), TENG_OK);
    assert_true(digest.bytes == map.size && digest.xxh3 == tg_hash64(map.data, map.size, 0));
    tg_map_close(&map);
    tg_st_file *f;
    assert_int_equal(tg_st_open(in_dir("l.safetensors"), &f), TENG_OK);
    assert_memory_equal(tg_st_at(f, 0)->data, x, (size_t)n * sizeof *x);
    tg_st_close(&f);
    tg_free(x);
}

static void reading_converts_floats_only(void **state)
{
    (void)state;
    tg_ckpt_item items[8];
    size_t n = sample(items);
    tg_st_file *f;
    assert_int_equal(tg_st_write(in_dir("a.safetensors"), items, n, NULL, NULL), TENG_OK);
    assert_int_equal(tg_st_open(in_dir("a.safetensors"), &f), TENG_OK);
    teng_desc want = tg_desc_make(TENG_BF16, 2, (int64_t[]){2, 3});
    uint16_t half[6];
    assert_int_equal(tg_st_read(tg_st_find(f, "b.weight"), &want, half), TENG_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(half[i], tg_f32_to_bf16(weights[i]));
    teng_desc other = tg_desc_make(TENG_F32, 2, (int64_t[]){3, 2});
    assert_error(tg_st_read(tg_st_find(f, "b.weight"), &other, half), TENG_FORMAT,
                 "a.safetensors|\"b.weight\" is f32[2,3]|f32[3,2] is needed");
    teng_desc ints = tg_desc_make(TENG_I32, 2, (int64_t[]){2, 3});
    assert_error(tg_st_read(tg_st_find(f, "b.weight"), &ints, half), TENG_FORMAT, "f32[2,3]|i32[2,3]");
    tg_st_close(&f);
}

/* A file from its header's text and a number of data bytes; exact heap size, so that a sanitizer sees an
 * over-read. */
static unsigned char *build(const char *header, size_t data, size_t *size)
{
    uint64_t n = strlen(header);
    *size = 8 + n + data;
    unsigned char *bytes = tg_calloc(*size, 1);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, n);
    return bytes;
}

static teng_status open_built(const char *header, size_t data)
{
    size_t size;
    unsigned char *bytes = build(header, data, &size);
    tg_st_file *f;
    teng_status status = tg_st_open_memory("bad.safetensors", bytes, size, &f);
    if (status == TENG_OK) tg_st_close(&f);
    assert_null(f);
    tg_free(bytes);
    return status;
}

#define ENTRY(dtype, shape, begin, end)                                                                      \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        teng_status status;
        const char *message;
    } cases[] = {
        {"{}", 0, TENG_OK, ""},
        {"{}   ", 0, TENG_OK, ""},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 8) "}", 8, TENG_OK, ""},
        {"", 0, TENG_FORMAT, "offset 8|'{'"},
        {" {}", 0, TENG_FORMAT, "offset 8|'{'"},
        {"[]", 0, TENG_FORMAT, "'{'"},
        {"{\"a\":", 0, TENG_FORMAT, "header at offset 8:1:"},
        {"{} x", 0, TENG_FORMAT, "header at offset 8"},
        {"{\"a\":1,\"a\":2}", 0, TENG_FORMAT, "duplicate|\"a\""},
        {"{\"\xff\":1}", 0, TENG_FORMAT, "header at offset 8"},
        {"{\"__metadata__\":3}", 0, TENG_FORMAT, "__metadata__|object"},
        {"{\"__metadata__\":{\"k\":3}}", 0, TENG_FORMAT, "__metadata__.k|string"},
        {"{\"a\":7}", 0, TENG_FORMAT, "tensor \"a\"|dtype"},
        {"{\"a\":{\"dtype\":\"F32\"}}", 0, TENG_FORMAT, "tensor \"a\"|shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, TENG_FORMAT, "tensor \"a\"|data_offsets"},
        {"{\"a\":"
         "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}"
         "}",
         4, TENG_FORMAT, "data_offsets"},
        {"{\"a\":" ENTRY("F32", "[1.0]", 0, 4) "}", 4, TENG_FORMAT, "dimension 0"},
        {"{\"a\":" ENTRY("F32", "[1,-1]", 0, 4) "}", 4, TENG_FORMAT, "dimension 1"},
        {"{\"a\":" ENTRY("F8_E4M3", "[4]", 0, 4) "}", 4, TENG_UNSUPPORTED, "tensor \"a\"|F8_E4M3"},
        {"{\"a\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, TENG_UNSUPPORTED, "9 dimensions|8"},
        {"{\"a\":" ENTRY("F32", "[4611686018427387904,4611686018427387904]", 0, 0) "}", 0, TENG_FORMAT,
         "2^63"},
        {"{\"a\":" ENTRY("F32", "[0,4611686018427387904,4611686018427387904]", 0, 0) "}", 0, TENG_FORMAT,
         "2^63"},
        {"{\"a\":" ENTRY("U8", "[9223372036854775807,2]", 0, 0) "}", 0, TENG_FORMAT, "2^63"},
        {"{\"a\":" ENTRY("F32", "[99999999999999999999]", 0, 0) "}", 0, TENG_FORMAT, "too big"},
        {"{\"a\":" ENTRY("F32", "[1]", 8, 4) "}", 8, TENG_FORMAT, "tensor \"a\"|[8, 4]"},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 8) "}", 7, TENG_FORMAT, "tensor \"a\"|[0, 8]|7 bytes|truncated"},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 9223372036854775807) "}", 7, TENG_FORMAT, "9223372036854775807"},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 4) "}", 4, TENG_FORMAT,
         "tensor \"a\"|f32[2] needs 8 bytes|give 4|offset"},
        {"{\"a\":" ENTRY("F32", "[1]", 4, 8) "}", 8, TENG_FORMAT, "4 bytes at offset|before tensor \"a\""},
        {"{\"a\":" ENTRY("F32", "[1]", 0, 4) "}", 9, TENG_FORMAT, "5 bytes at offset|after the last tensor"},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 8) ",\"b\":" ENTRY("F32", "[1]", 4, 8) "}", 8, TENG_FORMAT,
         "tensor \"b\" at offset|overlaps tensor \"a\""},
        {"{\"a\":" ENTRY("U8", "[1]", 0, 1) ",\"b\":" ENTRY("U8", "[1]", 2, 3) "}", 3, TENG_FORMAT,
         "before tensor \"b\""},
        {"{\"a\":" ENTRY("U8", "[0]", 3, 3) ",\"b\":" ENTRY("U8", "[3]", 0, 3) "}", 3, TENG_OK, ""},
        {"{\"a\":" ENTRY("U8", "[0]", 1, 1) ",\"b\":" ENTRY("U8", "[3]", 0, 3) "}", 3, TENG_FORMAT,
         "overlaps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        teng_status status = open_built(cases[i].header, cases[i].data);
        if (status != cases[i].status)
            fail_msg("%s: %s: %s", cases[i].header, teng_status_name(status), teng_error());
        if (status == TENG_OK) continue;
        if (!strstr(teng_error(), "bad.safetensors")) fail_msg("%s does not name the file", teng_error());
        assert_error(status, cases[i].status, cases[i].message);
    }
    char *deep = tg_alloc(200001);
    memset(deep, '[', 200000);
    memcpy(deep, "{\"a\":", 5);
    deep[200000] = '\0';
    assert_error(open_built(deep, 0), TENG_FORMAT, "header at offset 8");
    tg_free(deep);
}

static void bad_length(void **state)
{
    (void)state;
    tg_st_file *f;
    unsigned char bytes[16] = {0};
    assert_error(tg_st_open_memory("m", bytes, 0, &f), TENG_FORMAT, "m: 0 bytes are too few");
    assert_error(tg_st_open_memory("m", bytes, 7, &f), TENG_FORMAT, "7 bytes");
    memcpy(bytes, (uint64_t[]){9}, 8);
    assert_error(tg_st_open_memory("m", bytes, 16, &f), TENG_FORMAT,
                 "header length is 9|only 8 bytes follow|truncated");
    memcpy(bytes, (uint64_t[]){UINT64_MAX}, 8);
    assert_error(tg_st_open_memory("m", bytes, 16, &f), TENG_FORMAT, "18446744073709551615|100000000");
    memcpy(bytes, (uint64_t[]){100000001}, 8);
    assert_error(tg_st_open_memory("m", bytes, 16, &f), TENG_FORMAT, "limit of 100000000");
    assert_error(tg_st_open(in_dir("none.safetensors"), &f), TENG_IO, "none.safetensors");
    assert_null(f);
}

static void misaligned_data_is_copied(void **state)
{
    (void)state;
    size_t size;
    const char *header = "{\"a\":" ENTRY("U8", "[3]", 0, 3) ",\"b\":" ENTRY("F64", "[1]", 3, 11) "}";
    unsigned char *bytes = build(header, 11, &size);
    double v = 2.75;
    memcpy(bytes + size - 8, &v, 8);
    tg_st_file *f;
    assert_int_equal(tg_st_open_memory("m", bytes, size, &f), TENG_OK);
    const tg_st_tensor *t = tg_st_find(f, "b");
    assert_int_equal((uintptr_t)t->data % 8, 0);
    assert_true(*(const double *)t->data == 2.75);
    assert_int_equal(t->offset, size - 8);
    tg_st_close(&f);
    tg_free(bytes);
}

/* Whatever opens must describe memory that is there; whatever does not must say why and name the file. */
static void check_result(const unsigned char *bytes, size_t size, size_t at)
{
    unsigned char *exact = tg_alloc(size ? size : 1);
    memcpy(exact, bytes, size);
    tg_st_file *f;
    unsigned sum = 0;
    if (tg_st_open_memory("mutant", exact, size, &f) == TENG_OK) {
        uint64_t total = 0;
        for (size_t i = 0; i < tg_st_count(f); i++) {
            const tg_st_tensor *t = tg_st_at(f, i);
            size_t n = tg_desc_bytes(&t->desc);
            for (size_t k = 0; k < n; k++)
                sum += ((const unsigned char *)t->data)[k];
            total += n;
        }
        assert_true(total <= size);
        tg_st_close(&f);
    } else if (strncmp(teng_error(), "mutant", 6) != 0) {
        fail_msg("byte %zu: \"%s\" does not name the file", at, teng_error());
    }
    teng_error_clear();
    tg_free(exact);
    (void)sum;
}

static void every_header_byte(void **state)
{
    (void)state;
    tg_ckpt_item items[8];
    size_t n = sample(items), size;
    char *bytes;
    assert_int_equal(tg_st_write(in_dir("a.safetensors"), items, n, NULL, NULL), TENG_OK);
    assert_int_equal(tg_file_read(in_dir("a.safetensors"), &bytes, &size), TENG_OK);
    uint64_t header;
    memcpy(&header, bytes, 8);
    static const unsigned char values[] = {0,   1,   0x7f, 0x80, 0xff, ' ', '"', '\\',
                                           '0', '9', '-',  ',',  '}',  ']', '.', 'e'};
    for (size_t at = 0; at < 8 + header; at++) {
        char old = bytes[at];
        for (size_t v = 0; v < sizeof values; v++) {
            bytes[at] = (char)values[v];
            check_result((unsigned char *)bytes, size, at);
        }
        bytes[at] = (char)(old ^ 1);
        check_result((unsigned char *)bytes, size, at);
        bytes[at] = old;
    }
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *exact = tg_alloc(cut ? cut : 1);
        memcpy(exact, bytes, cut);
        tg_st_file *f;
        assert_int_equal(tg_st_open_memory("cut", exact, cut, &f), TENG_FORMAT);
        teng_error_clear();
        tg_free(exact);
    }
    tg_free(bytes);
}

static void writer_refuses(void **state)
{
    (void)state;
    tg_ckpt_item a = {.name = "a", .desc = tg_desc_make(TENG_F32, 1, (int64_t[]){2}), .data = weights},
                 pair[2] = {a, a};
    const char *path = in_dir("w.safetensors");
    assert_error(tg_st_write(path, pair, 2, NULL, NULL), TENG_INVALID, "w.safetensors|two tensors|\"a\"");
    pair[1].name = "__metadata__";
    assert_error(tg_st_write(path, pair, 2, NULL, NULL), TENG_INVALID, "__metadata__");
    pair[1].name = "bad\xff";
    assert_error(tg_st_write(path, pair, 2, NULL, NULL), TENG_INVALID, "UTF-8");
    pair[1].name = "b";
    pair[1].data = NULL;
    assert_error(tg_st_write(path, pair, 2, NULL, NULL), TENG_INVALID, "\"b\" has no data");
    pair[1].data = weights;
    pair[1].desc.dims[0] = -1;
    assert_error(tg_st_write(path, pair, 2, NULL, NULL), TENG_INVALID, "\"b\"|dimension 0 is -1");
    json_t *meta = json_pack("{s:i}", "k", 3);
    assert_error(tg_st_write(path, &a, 1, meta, NULL), TENG_INVALID, "metadata \"k\"|string");
    json_decref(meta);
    assert_false(tg_path_exists(path));
    assert_error(tg_st_write(in_dir("no/such/f.safetensors"), &a, 1, NULL, NULL), TENG_IO, "no/such");
}

/* ---- shards ---- */

static void write_sharded(uint64_t max)
{
    tg_ckpt_item items[8];
    size_t n = sample(items);
    assert_int_equal(tg_st_write_sharded(scratch_dir(), "model", items, n, max, NULL), TENG_OK);
}

static void check_weights(const char *path)
{
    tg_ckpt_item items[8];
    size_t n = sample(items);
    tg_weights *w;
    teng_status status = tg_weights_open(path, &w);
    if (status != TENG_OK) fail_msg("%s", teng_error());
    assert_int_equal(tg_weights_count(w), n);
    for (size_t i = 0; i < n; i++) {
        const tg_st_tensor *t = tg_weights_find(w, items[i].name);
        assert_non_null(t);
        assert_true(tg_desc_equal(&t->desc, &items[i].desc));
        if (items[i].data) assert_memory_equal(t->data, items[i].data, tg_desc_bytes(&t->desc));
    }
    assert_null(tg_weights_find(w, "absent"));
    assert_null(tg_weights_at(w, n));
    tg_weights_close(&w);
    assert_null(w);
}

static void shards(void **state)
{
    (void)state;
    write_sharded(0);
    check_weights(scratch_dir());
    check_weights(in_dir("model.safetensors"));
    assert_false(tg_path_exists(in_dir("model.safetensors.index.json")));
    assert_int_equal(tg_remove_tree(in_dir("model.safetensors")), TENG_OK);
    /* 3 + 24 | 6 + 16 + 4 + 0: the limit is kept, the order of items too */
    write_sharded(27);
    assert_true(tg_path_exists(in_dir("model-00001-of-00002.safetensors")));
    assert_true(tg_path_exists(in_dir("model-00002-of-00002.safetensors")));
    check_weights(scratch_dir());
    check_weights(in_dir("model.safetensors.index.json"));
    json_t *index;
    int64_t total = 0;
    assert_int_equal(tg_json_load_file(in_dir("model.safetensors.index.json"), &index), TENG_OK);
    assert_int_equal(tg_json_get_int(json_object_get(index, "metadata"), "m", "total_size", true, &total),
                     TENG_OK);
    assert_int_equal(total, 3 + 24 + 6 + 16 + 4);
    json_decref(index);
    write_sharded(1); /* every tensor is larger than a shard: one each */
    assert_true(tg_path_exists(in_dir("model-00006-of-00006.safetensors")));
    check_weights(scratch_dir());
}

static void set_index(const char *text)
{
    assert_int_equal(tg_file_write(in_dir("model.safetensors.index.json"), text, strlen(text)), TENG_OK);
}

static void bad_weights(void **state)
{
    (void)state;
    tg_weights *w;
    tg_ckpt_item a = {.name = "a", .desc = tg_desc_make(TENG_F32, 1, (int64_t[]){2}), .data = weights}, b = a,
                 both[2];
    b.name = "b";
    both[0] = a;
    both[1] = b;
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_IO, "neither model.safetensors nor");
    assert_int_equal(tg_file_write(in_dir("pytorch_model.bin"), "x", 1), TENG_OK);
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_IO, "pickle|safe_serialization");
    assert_int_equal(tg_st_write(in_dir("1.safetensors"), &a, 1, NULL, NULL), TENG_OK);
    assert_int_equal(tg_st_write(in_dir("2.safetensors"), both, 2, NULL, NULL), TENG_OK);
    set_index("{}");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_FORMAT, "index.json|weight_map");
    set_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"9.safetensors\"}}");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_IO, "shard 9.safetensors|\"c\"|missing");
    set_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"1.safetensors\"}}");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_FORMAT,
                 "\"c\" is listed for 1.safetensors|does not hold");
    set_index("{\"weight_map\":{\"a\":\"2.safetensors\"}}");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_FORMAT, "\"b\" lies in|does not list");
    set_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_FORMAT,
                 "\"a\" is in two files|1.safetensors|2.safetensors");
    set_index("{\"weight_map\":{\"a\":\"../1.safetensors\"}}");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_FORMAT, "../1.safetensors|beside the index");
    set_index("{\"weight_map\":{\"a\":3}}");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_FORMAT, "weight_map.a");
    set_index("{\"weight_map\":");
    assert_error(tg_weights_open(scratch_dir(), &w), TENG_FORMAT, "index.json");
    assert_null(w);
}

/* Each allocation on the way fails once: an error, no leak (the sanitizer looks), no crash. */
static void out_of_memory(void **state)
{
    (void)state;
    write_sharded(27);
    int failures = 0;
    for (uint64_t k = 1; k < 300; k++) {
        tg_weights *w;
        tg_alloc_fail_at(k);
        teng_status status = tg_weights_open(scratch_dir(), &w);
        tg_alloc_fail_at(0);
        if (status == TENG_OK) {
            tg_weights_close(&w);
            break;
        }
        assert_int_equal(status, TENG_MEMORY);
        assert_null(w);
        teng_error_clear();
        failures++;
    }
    assert_in_range(failures, 10, 298);
    failures = 0;
    for (uint64_t k = 1; k < 300; k++) {
        tg_ckpt_item items[8];
        size_t n = sample(items);
        tg_alloc_fail_at(k);
        teng_status status = tg_st_write_sharded(scratch_dir(), "model", items, n, 27, NULL);
        tg_alloc_fail_at(0);
        teng_error_clear();
        if (status == TENG_OK) break;
        failures++;
    }
    assert_in_range(failures, 10, 298);
    check_weights(scratch_dir());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, enter, leave),
        cmocka_unit_test_setup_teardown(no_tensors, enter, leave),
        cmocka_unit_test_setup_teardown(large_tensor, enter, leave),
        cmocka_unit_test_setup_teardown(reading_converts_floats_only, enter, leave),
        cmocka_unit_test_setup_teardown(bad_headers, enter, leave),
        cmocka_unit_test_setup_teardown(bad_length, enter, leave),
        cmocka_unit_test_setup_teardown(misaligned_data_is_copied, enter, leave),
        cmocka_unit_test_setup_teardown(every_header_byte, enter, leave),
        cmocka_unit_test_setup_teardown(writer_refuses, enter, leave),
        cmocka_unit_test_setup_teardown(shards, enter, leave),
        cmocka_unit_test_setup_teardown(bad_weights, enter, leave),
        cmocka_unit_test_setup_teardown(out_of_memory, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
