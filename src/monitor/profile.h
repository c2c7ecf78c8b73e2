/*
 * Where the time of steps goes: operators as they ran, each with its layer, shapes, cost and what the machine
 * could have reached, and what the host did between them. Collected by whoever runs steps, kept in a run
 * folder as trace.json (every event, for Perfetto or chrome://tracing) and profile.json (sums, for the
 * report). It knows no graph and no trainer: names and figures come in as texts and numbers.
 *
 * What it is made of adds up: a step's time = operators + messages + data + evaluation + checkpoint + books +
 * gaps.
 */
#ifndef TG_MONITOR_PROFILE_H
#define TG_MONITOR_PROFILE_H

#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/vec.h"

typedef enum tg_profile_part {
    TG_PROFILE_FORWARD, /* operators, by phase */
    TG_PROFILE_BACKWARD,
    TG_PROFILE_UPDATE,
    TG_PROFILE_DATA, /* the host: waiting for a batch, … */
    TG_PROFILE_EVALUATION,
    TG_PROFILE_CHECKPOINT,
    TG_PROFILE_BOOKS, /* metrics and console */
    TG_PROFILE_PARTS
} tg_profile_part;
const char *tg_profile_part_name(tg_profile_part part);

/* One operator on its shapes in one layer, of all steps together. Texts are the profile's. */
typedef struct tg_profile_row {
    tg_profile_part part;
    const char *op, *layer, *kernel, *dtype; /* dtype of the first floating input, "" without one */
    const char *shape;                       /* of the inputs */
    bool recomputed;
    double flops, bytes; /* of one call */
    int64_t calls;
    double seconds; /* of all calls */
} tg_profile_row;

typedef struct tg_profile_event {
    int64_t begin, end;   /* nanoseconds since the profile began */
    tg_profile_part part; /* of the host; of operators that of the row */
    int row;              /* -1: the host */
} tg_profile_event;

typedef struct tg_profile_step {
    int64_t step, begin, end;
    double cpu_seconds; /* of all threads of the process; negative when unknown */
    uint64_t resident;  /* bytes at its end */
} tg_profile_step;

typedef struct tg_profile_machine {
    const char *device;
    int threads;
    double f32_flops, bf16_flops; /* a second; bf16 0: not native */
    double bytes_per_s;
} tg_profile_machine;

typedef struct tg_profile {
    tg_arena *arena;
    struct tg_strmap *index; /* key → row */
    size_t waiting;          /* event of the step's wait for data */
    TG_VEC(tg_profile_row) rows;
    TG_VEC(tg_profile_event) events;        /* in order; of the thread that trains */
    TG_VEC(tg_profile_event) beside;        /* of the thread that keeps the books of a data sink */
    TG_VEC(tg_profile_event) communication; /* of the thread of communication: collectives beside operators */
    TG_VEC(tg_profile_step) steps;
    tg_profile_machine machine;
    json_t *settings; /* keys of the configuration that the suggestions look at, "context.mode": "graph" */
    double origin;    /* clock seconds */
    /* Sums over the steps; made by tg_profile_sum, or read back. */
    int64_t n_steps, first_step, last_step;
    double wall, cpu_seconds; /* cpu negative: unknown */
    double part[TG_PROFILE_PARTS];
    double gaps;                  /* of wall, what no event covers */
    double aside;                 /* seconds of beside */
    double communicated, exposed; /* seconds between ranks; of these, what computation waited for */
    double messages;              /* of exposed: in no operator (between stages of a pipeline, the host's) */
    double told_busy, told_exposed;
    json_t *sent; /* {"data": bytes of this rank along these axes} */
    bool failed;  /* memory ran out on the way: what is there is incomplete */
} tg_profile;

/* machine's text and settings (may be NULL) are copied. NULL when memory is out. */
tg_profile *tg_profile_create(const tg_profile_machine *machine, json_t *settings);
void tg_profile_destroy(tg_profile **profile);

/* ---- collecting; failures are remembered and told by tg_profile_sum ---- */
/* The row of that key (any bytes), -1 when there is none yet; and a new one, whose texts are copied. */
int tg_profile_find(const tg_profile *p, const void *key, size_t len);
int tg_profile_add(tg_profile *p, const void *key, size_t len, const tg_profile_row *row);
/* Clock seconds. Operators and the host's work of one thread come in order and do not overlap. */
void tg_profile_operator(tg_profile *p, int row, double begin, double end);
/* A collective: begin … end as above, the time that the training thread waited for it; beside_begin …
 * beside_end: when it ran on the thread of communication, 0: it did not. */
void tg_profile_collective(tg_profile *p, int row, double begin, double end, double beside_begin,
                           double beside_end);
/* What communication took in all, of the steps; and bytes that this rank sent along some axes. Added up. */
void tg_profile_communication(tg_profile *p, double busy, double exposed);
void tg_profile_sent(tg_profile *p, const char *axes, double bytes);
void tg_profile_host(tg_profile *p, tg_profile_part part, double begin, double end);
void tg_profile_beside(tg_profile *p, tg_profile_part part, double begin, double end);
/* A step begins with waiting for its batch; how long is told before anything else of the step is summed. */
void tg_profile_begin_step(tg_profile *p, int64_t step, double begin);
void tg_profile_waited(tg_profile *p, double seconds);
void tg_profile_end_step(tg_profile *p, double end, double cpu_seconds, uint64_t resident);

/* ---- sums and files ---- */
teng_status tg_profile_sum(tg_profile *p);
/* DIR/trace.json and DIR/profile.json, atomically, of a profile that was summed. */
teng_status tg_profile_write(const tg_profile *p, const char *dir);
/* Sums and rows of a profile.json; no events. */
teng_status tg_profile_read(const char *path, tg_profile **out);

/* ---- what it means (profile_report.c) ---- */
/* Least time that the machine needs for a call: the longer of flops at the peak of its dtype and bytes at
 * memory's rate; *memory (may be NULL): the latter. */
double tg_profile_attainable(const tg_profile *p, const tg_profile_row *row, bool *memory);
void tg_profile_report(const tg_profile *p, tg_strbuf *out);
/* The same as JSON, all operators and layers. New reference, NULL when memory is out. */
json_t *tg_profile_report_json(const tg_profile *p);

#endif
