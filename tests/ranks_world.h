/* The ranks that a test was started with, alone or by mpirun, all along one axis of the mesh. */
#ifndef RANKS_WORLD_H
#define RANKS_WORLD_H

#include "comm/comm.h"

/* Registers the operators too. False: it is said why. */
bool world_open(tg_axis axis, tg_comm **comm);
/* What main returns: the number of failures. With any, the others do not wait for this rank. */
int world_close(tg_comm **comm, int failures);

#endif
