/* A step of a small model as every rank of a mesh runs it, in one process (par_sim.h), beside one rank. */
#ifndef TENG_TESTS_PAR_CASE_H
#define TENG_TESTS_PAR_CASE_H

#include "nn/cell.h"
#include "par_sim.h"

typedef struct par_case {
    const char *config;                     /* config.json text */
    teng_cell *(*make)(const char *config); /* the model that takes tokens and labels; NULL: teng_lm_create */
    int size[TG_AXES];                      /* 0 stands for 1 */
    bool sequence, dropout;
    int zero;
    int64_t micro_batches; /* 0 stands for 1 */
    teng_dtype reduce_dtype;
    size_t fusion;
    const teng_precision *precision;
    int64_t rows, seq; /* of a micro-batch over all ranks; 0: 8 and 16 */
} par_case;

/* The step's global graph: forward, backward, AdamW with clip 1. */
tg_graph *par_case_graph(const par_case *c, teng_cell *lm);
/* The graph of one rank and what was made with it; fails the test on an error. */
tg_graph *par_case_local(const par_case *c, teng_cell *lm, int rank, tg_parallel **made);
teng_status par_case_try(const par_case *c, teng_cell *lm, int rank, tg_graph **local, tg_parallel **made);

typedef struct par_result {
    double loss[3], norm[3];
    float **params; /* after three steps, in the order of tg_nn_params */
    size_t n;
} par_result;
/* Three steps on all ranks; random tokens, some labels ignored. */
void par_case_run(const par_case *c, par_result *out);
void par_result_free(par_result *r);
/* Fails when losses, norms or parameters differ by more than tol (relative). */
void par_case_compare(const char *what, const par_case *c, double tol);

#endif
