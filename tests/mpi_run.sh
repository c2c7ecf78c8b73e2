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
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
# What MPI's own libraries leave behind when they end is not ours; the same test alone looks for leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
exec "$mpirun" -n "$ranks" "$@"
