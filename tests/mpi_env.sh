# Read (".") by whatever starts ranks in the tests: as root and with more ranks than cores too, one thread each.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
# What MPI's own libraries leave behind when they end is not ours; tests of one rank look for leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
