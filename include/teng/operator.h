/*
 * What an operator is: the contract between the graph, autograd, the planner and the kernels. Built-in
 * operators and operators that a user adds from a shared object (context.plugins) fill the same tables and
 * pass the same table test. Shapes, dtypes and costs are pure functions of a call; nothing here touches a
 * device before a kernel is prepared.
 */
#ifndef TENG_OPERATOR_H
#define TENG_OPERATOR_H

#include "teng/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENG_MAX_OUT 32 /* outputs of one operator */

/* A value: symbolic while a graph is traced (GRAPH), computed at once in PYNATIVE. Owned by its graph. */
typedef struct teng_tensor teng_tensor;
typedef struct teng_op_spec teng_op_spec;

/* ---- attributes: a plain struct of the operator, described by a field table (printing, parsing, equality)
 * ---- */
typedef struct teng_dims { /* a list of numbers, as shapes, axes and sizes */
    int64_t n;
    int64_t v[TENG_MAX_DIMS];
} teng_dims;
typedef enum teng_attr_type {
    TENG_ATTR_INT /* int64_t */,
    TENG_ATTR_REAL /* double */,
    TENG_ATTR_DIMS
} teng_attr_type;
typedef struct teng_attr_field {
    const char *name;
    teng_attr_type type;
    size_t offset;
    const char *const *choices; /* INT that stands for a name: NULL-terminated names of 0, 1, …; else NULL */
} teng_attr_field;

/* ---- one call: what an operator is asked to do, without data ---- */
typedef struct teng_op_call {
    const teng_op_spec *op;
    const void *attr; /* op->attr_size bytes, or NULL when the operator has none */
    int n_in, n_out;
    const teng_desc *in; /* [n_in] */
    teng_desc *out;      /* [n_out]; infer fills it, all else only reads */
} teng_op_call;

/* ---- gradient: nodes appended by the operator's rule ---- */
typedef struct teng_grad_ctx {
    const void *attr;
    int n_in, n_out;
    teng_tensor *const *in;
    teng_tensor *const *out;
    teng_tensor *const *out_grad; /* [n_out]; NULL: no gradient flows into this output */
    const bool *need;             /* [n_in]: which inputs want a gradient */
    teng_tensor **in_grad;        /* [n_in], preset NULL; the rule sets those that are needed (NULL = zero) */
} teng_grad_ctx;

/* ---- placement on one mesh axis: how shards of the inputs give shards of the outputs ---- */
typedef struct teng_place_rules teng_place_rules;
/* Adds one valid rule: with inputs placed as in[n_in], the same operator on local shards gives outputs placed
 * as out[n_out]. All-replicated is implied and need not be added. */
TENG_API void teng_place_add(teng_place_rules *rules, const teng_place *in, const teng_place *out);

/* ---- cost ---- */
typedef struct teng_cost {
    double flops;
    double bytes_read,
        bytes_written; /* preset to all inputs, all outputs; the rule corrects them if need be */
} teng_cost;

/* ---- kernels ---- */
typedef struct teng_prepared {
    void *state;      /* of the kernel, freed by release */
    size_t workspace; /* bytes needed by each run, 64-byte aligned, contents undefined */
} teng_prepared;
typedef struct teng_kernel_args {
    const teng_op_call *call;
    void *state;
    const void *const *in; /* [n_in] */
    void *const *out; /* [n_out]; may equal an input's buffer where the spec's inplace or updates allow it */
    void *workspace;
    void *stream; /* of the device; CPU: NULL */
} teng_kernel_args;
typedef struct teng_kernel {
    const char *name;                                /* "fused f32", shown in plans */
    const char *(*accept)(const teng_op_call *call); /* NULL when it can run this call, else the reason why
                                                        not; a NULL function accepts everything */
    teng_status (*prepare)(const teng_op_call *call, teng_prepared *out); /* once; may be NULL */
    teng_status (*run)(const teng_kernel_args *args);                     /* never allocates */
    void (*release)(void *state);                                         /* may be NULL */
} teng_kernel;
typedef struct teng_kernel_table { /* kernels of one device and instruction set, preferred first */
    const char *device;            /* "cpu" */
    int isa;                       /* CPU: a TG_CPU_… level, 0 = runs anywhere */
    const teng_kernel *kernels;    /* ends with .name == NULL */
} teng_kernel_table;

/* ---- mixed precision: what precision.level makes of an operator in the forward pass; the gradient follows.
 * In O0 everything stays as the model says ---- */
typedef enum teng_precision_class {
    TENG_PRECISION_OTHER,   /* O1: f32; O2, O3: 16 bits where an operand has 16 bits; auto: the widest operand
                             */
    TENG_PRECISION_PRODUCT, /* the white list: 16 bits from O1 on, sums in f32 */
    TENG_PRECISION_NORM, /* the black list: O1, auto: f32; O2: parameters and arithmetic in f32 on data as it
                            is; O3: parameters in 16 bits too */
    TENG_PRECISION_MOVE, /* moves values: data as it is */
    TENG_PRECISION_LOOKUP, /* rows of a table: read as it is; O2, O3: the result in 16 bits */
} teng_precision_class;

/* ---- traits ---- */
enum {
    TENG_OP_VIEW = 1, /* output 0 is bytes of input 0 under another shape, all unless view_offset says where
                         they begin: no kernel runs */
    TENG_OP_ELEMENTWISE =
        2,              /* each output element depends on the same element of the inputs (after broadcast) */
    TENG_OP_RANDOM = 4, /* draws from the counter-based generator */
    TENG_OP_COMMUNICATES = 8,
    TENG_OP_COMMUTES = 16, /* swapping inputs 0 and 1 changes no bit */
};

struct teng_op_spec {
    const char *name;
    const char *doc;    /* one paragraph: formula, inputs, attributes, source */
    int min_in, max_in; /* inputs above min_in are optional, absent from the end; max_in -1: any number */
    int n_out;          /* -1: infer decides (at most TENG_MAX_OUT) */
    size_t attr_size;
    const teng_attr_field *attrs; /* ends with .name == NULL; NULL when attr_size is 0 */
    uint32_t traits;
    uint32_t inplace[TENG_MAX_OUT]; /* output o may occupy the buffer of input i where bit i is set */
    uint8_t
        updates[TENG_MAX_OUT]; /* 1 + i: output o IS the new value of input i, in its buffer (optimizers) */
    teng_status (*infer)(teng_op_call *call); /* checks inputs (errors name them), fills out[], n_out if -1 */
    teng_status (*grad)(teng_grad_ctx *ctx);  /* NULL: none, and no_grad says why */
    const char *no_grad;
    uint32_t grad_in, grad_out; /* which input and output VALUES the gradient reads (not just shapes) */
    void (*place)(const teng_op_call *call,
                  teng_place_rules *rules); /* NULL: only replicated, no_place says why */
    const char *no_place;
    /* Attributes of shard `index` of `parts` under a rule, where they hold sizes or positions; call is the
     * whole one; NULL: attributes do not change. Where several axes split, one after the other, from the
     * outermost pieces inwards: `call` then is what the axes before have left. */
    void (*localize)(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr);
    /* In its place where a split dimension is one of sequences and the shard has pieces index and
     * 2·parts - 1 - index of 2·parts equal ones, one behind the other (context parallel); NULL: localize
     * serves both. */
    void (*localize_pair)(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr);
    void (*cost)(const teng_op_call *call, teng_cost *cost); /* never NULL */
    int64_t (*view_offset)(const teng_op_call *call); /* of a view of a part: its first byte; NULL: 0 */
    const teng_kernel_table *kernels; /* fastest first; ends with .kernels == NULL; NULL for views */
    const char *no_kernels;           /* reason, when kernels is NULL */
    teng_precision_class precision;
    uint32_t f32_in; /* inputs that may be f32 while input 0 has 16 bits: biases, weights of norms */
};

/* Appends a call of `op` to the graph of its operands (or the current trace when it has none), in eager mode
 * runs it. A NULL operand is an earlier failure: the result is NULL and the first error is kept (absent
 * optional inputs are left out of n_in). Returns out[0]; all outputs in out[] when out is not NULL. */
TENG_API teng_tensor *teng_apply(teng_src at, const teng_op_spec *op, const void *attr, int n_in,
                                 teng_tensor *const *in, teng_tensor **out);
/* Shape and dtype of a value. */
TENG_API const teng_desc *teng_tensor_desc(const teng_tensor *t);
/* PYNATIVE: copies the value to host memory as n floats (converted; n is its number of elements). In GRAPH
 * mode values do not exist while the model is traced: TENG_STATE. */
TENG_API teng_status teng_tensor_read(teng_tensor *t, float *out, int64_t n);
/* Reports a failure from an operator's rules. Returns status. */
TENG_API teng_status teng_fail(teng_status status, const char *fmt, ...) TENG_PRINTF(2, 3);

/* ---- case lists: sample calls with a float64 reference; they drive the agreement of instruction sets and
 * dtypes, finite-difference gradients, placement checks and the benchmark ---- */
typedef enum teng_fill {
    TENG_FILL_NORMAL,  /* mean lo, deviation hi (0, 0 means 0, 1) */
    TENG_FILL_UNIFORM, /* [lo, hi) */
    TENG_FILL_INTS,    /* integers lo … hi - 1 */
    TENG_FILL_CONST,   /* lo */
    TENG_FILL_STEPS,   /* lo, lo + 1, lo + 2, … */
} teng_fill;
typedef struct teng_case_input {
    teng_desc desc;
    teng_fill fill;
    double lo, hi;
    bool keep_dtype; /* not replaced when the case is tried in another floating dtype */
    bool no_grad;    /* not differentiated by the finite-difference test */
} teng_case_input;
#define TENG_CASE_MAX_IN 10
typedef struct teng_op_case {
    const char *label;
    const void *attr;
    int n_in;
    teng_case_input in[TENG_CASE_MAX_IN];
} teng_op_case;
typedef struct teng_op_cases {
    const char *op;
    const teng_op_case *list;
    int n;
    /* The formula in float64, plain loops. Integer inputs arrive as doubles too. */
    teng_status (*reference)(const teng_op_call *call, const double *const *in, double *const *out);
    uint32_t dtypes; /* bits 1 << TENG_F32, TENG_BF16, TENG_F16: floating dtypes that kernels take */
    double tol_f32, tol_bf16, tol_f16; /* relative L2 per output; 0: 1e-6, 8e-3, 1e-3 */
} teng_op_cases;

/* ---- plugins: a shared object exports `const teng_plugin *teng_plugin_entry(void)` ---- */
#define TENG_PLUGIN_ABI 4
typedef struct teng_plugin {
    int abi; /* TENG_PLUGIN_ABI */
    const char *name;
    const teng_op_spec *const *ops;    /* NULL-terminated */
    const teng_op_cases *const *cases; /* NULL-terminated; one for each operator */
} teng_plugin;
/* Loads a plugin; its operators join the operator table until the process ends. Twice is harmless. */
TENG_API teng_status teng_plugin_load(const char *path);
/* The operator of that name, for teng_apply: a loaded plugin's. NULL and an error that names the nearest. */
TENG_API const teng_op_spec *teng_op_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
