# teng launch and doctor ranks: what they start and say, alone, on several ranks, in wrong use.
# test_cli_ranks.sh TENG SOURCE
set -eu
source=$2
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
# once STATUS MESSAGE WORDS…: wrong on all of three ranks; told by one. Options behind the command are the command's.
once() {
    want=$1
    message=$2
    shift 2
    run "$want" launch -n 3 "$@"
    [ "$(grep -c "^teng.*$message" "$scratch/err")" = 1 ] || die "$*: not told once: $(cat "$scratch/err")"
    [ "$(grep -c '^usage: ' "$scratch/err")" -le 1 ] || die "$*: usage not told once: $(cat "$scratch/err")"
}
once 2 'unknown command "nonsense"' nonsense
once 2 'unknown option --nonsense' train --nonsense
once 2 'unknown option --nonsense' bench step --nonsense
for command in 'train' 'bench step'; do
    # shellcheck disable=SC2086
    once 1 'cannot open .*none.yaml' $command "$scratch/none.yaml"
    once 2 'unknown key "nonsense"' $command "$source/configs/llama-tiny.yaml" nonsense=1
    once 1 '= 2 ranks, and 3 run' $command "$source/configs/llama-tiny.yaml" parallel.tensor=2 run.dir="$scratch/r"
done
once 1 'holds no run' resume "$scratch/none"
# One rank alone has another command line: the others do not wait for it, and it is named.
run 2 launch -n 1 doctor ranks : -n 1 "$teng" doctor ranks --nonsense
err 'rank 1: unknown option --nonsense'
run 2 launch -n 1 train --nonsense : -n 1 "$teng" bench step default parallel.data=2
err 'rank 0: unknown option --nonsense'
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
# The banner: the mesh, and where each rank stands on it.
run 0 launch -n 4 train "$source/configs/llama-tiny.yaml" data.files="[$source/docs/design.md]" run.dir="$scratch/banner" \
    train.steps=1 data.val_fraction=0 train.eval_every=0 parallel.data=2 parallel.tensor=2 parallel.zero=1
out 'ranks    4: data 2 x tensor 2; ZeRO 1 (the last axis counts fastest)'
[ "$(grep -c 'rank [0-3] of 4 on .* (process [0-9]*): cores .*; data [01], tensor [01]$' "$scratch/out")" = 4 ] ||
    die "the banner does not name all ranks: $(cat "$scratch/out")"
grep -q 'rank 2 of 4 .*; data 1, tensor 0$' "$scratch/out" || die "rank 2 stands elsewhere: $(cat "$scratch/out")"
run 0 launch -n 2 train "$source/configs/llama-tiny.yaml" data.files="[$source/docs/design.md]" run.dir="$scratch/nobody" \
    train.steps=1 data.val_fraction=0 train.eval_every=0 parallel.tensor=2 parallel.zero=2
out 'tensor 2; ZeRO 2, with nothing to share out (the last axis counts fastest)'
# Every pair of eight ranks.
run 0 launch -n 8 doctor ranks --json
out 'rank 7 of 8 on '
out '"same_version": true'
run 1 launch -n 2 bench step default parallel.tensor=3 # MPI ends the job, with its status
err '3 ranks, and 2 run'
echo "$checks command lines"
