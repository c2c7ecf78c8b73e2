/*
 * All ranks of a mesh in one process: their graphs run in step, node by node, and what a collective would
 * send is copied between their buffers here. Slow and simple: a second opinion on what the parallel room
 * makes, without MPI.
 */
#ifndef TENG_TESTS_PAR_SIM_H
#define TENG_TESTS_PAR_SIM_H

#include "parallel/rank_graph.h"

typedef struct par_sim par_sim;
/* graphs[mesh->ranks] and what was made with them, borrowed. Fails the test on errors. */
par_sim *par_sim_create(const tg_mesh *mesh, tg_graph *const *graphs, tg_parallel *const *made);
void par_sim_destroy(par_sim **sim);
/* Whole host values of an input, parameter or state (f32, i32, u64): every rank takes its part. A name that a
 * graph lacks is left out. */
void par_sim_set(par_sim *sim, const char *name, const teng_desc *whole, const void *data);
void par_sim_run(par_sim *sim, tg_phase phase);
/* A graph output of rank r (f32). */
const float *par_sim_output(par_sim *sim, int rank, const char *name, int64_t *n);
/* The whole of a parameter or state, f32, put together from the ranks; they must agree where they hold the
 * same. Free with tg_free. */
float *par_sim_whole(par_sim *sim, const char *name);

#endif
