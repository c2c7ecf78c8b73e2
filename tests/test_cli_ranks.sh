# teng launch and doctor ranks: what they start and say, alone, on several ranks, in wrong use.
# test_cli_ranks.sh TENG
set -eu
. "$(dirname "$0")/cli_common.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS=detect_leaks=0 # MPI's own libraries leave some

run 0 version
usage '--n is missing' launch version
usage '--n: 0 is out of range' launch -n 0 version
usage 'COMMAND is missing' launch -n 2
run 1 launch -n 2 --mpirun "$scratch/none" version
if grep -q 'built without MPI' "$scratch/err"; then
    echo "skipped: built without MPI"
    exit 77
fi
err 'cannot start'
run 1 doctor ranks
err 'one rank alone; start several'
command -v mpirun >/dev/null || {
    echo "skipped: no mpirun on the PATH"
    exit 77
}
run 0 launch -n 2 version
[ "$(grep -c '^teng ' "$scratch/out")" = 2 ] || die "not two ranks: $(cat "$scratch/out")"
run 2 launch -n 2 nonsense # options and words behind the command are the command's
err 'unknown command "nonsense"'
run 0 launch -n 3 doctor ranks --json
for name in ranks mpi same_version worst_latency_us worst_bandwidth_gb_s of_ranks latency_us bandwidth_gb_s clock_offset_us; do
    out "\"$name\": "
done
out 'rank 2 of 3 on '
out '"same_version": true'
run 0 launch -n 2 doctor ranks
out 'bandwidth, GB/s'
out '2 ranks, '
run 0 launch -n 2 bench step default parallel.data=2 --steps 2 --no-peak --json
out '"ranks": 2'
out '"hidden_share": '
grep -q '"data": [1-9]' "$scratch/out" || die "no bytes along data: $(cat "$scratch/out")"
[ "$(grep -c '"first_loss"' "$scratch/out")" = 1 ] || die "not one rank answers: $(cat "$scratch/out")"
run 1 launch -n 2 bench step default parallel.tensor=3 # MPI ends the job, with its status
err '3 ranks, and 2 run'
echo "$checks command lines"
