#!/bin/sh
# mpi_run.sh RANKS PROGRAM [ARGUMENT ...]: under mpirun (Open MPI or MPICH; TENG_MPIRUN: which) on this machine, also
# as root and with more ranks than cores, one thread each. 77, which CTest takes for skipped, when there is no mpirun.
ranks=$1
shift
mpirun=${TENG_MPIRUN:-mpirun}
command -v "$mpirun" >/dev/null 2>&1 || {
    echo "skipped: no mpirun on the PATH"
    exit 77
}
. "$(dirname "$0")/mpi_env.sh"
exec "$mpirun" -n "$ranks" "$@"
