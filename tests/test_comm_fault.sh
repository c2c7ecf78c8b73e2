#!/bin/sh
# test_comm_fault.sh COMM_FAULT: ranks that die, hang, leave or differ. The others name them and what they did, soon,
# and the job ends with an error.
set -u
fault=$1
run=$(dirname "$0")/mpi_run.sh
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failures=0

# MPICH's launcher ends all ranks at the first that ends, and drops what it has not read from the others by then.
hydra=false
if "${TENG_MPIRUN:-mpirun}" --version 2>/dev/null | grep -q HYDRA; then hydra=true; fi

# check HOW LIMIT PATTERN ...: within LIMIT seconds, every pattern on a line (with MPICH one of them), a status that is
# not 0
check() {
    how=$1 limit=$2 found=0
    shift 2
    begin=$(date +%s)
    timeout 60 "$run" 4 "$fault" "$how" >"$out" 2>&1
    status=$?
    took=$(($(date +%s) - begin))
    [ $status != 77 ] || exit 77
    [ $status != 0 ] && [ $status != 124 ] || { echo "$how: status $status"; failures=$((failures + 1)); }
    [ $took -le "$limit" ] || { echo "$how: took $took s"; failures=$((failures + 1)); }
    for pattern; do
        grep -Eq "$pattern" "$out" && found=$((found + 1))
    done
    [ $found = $# ] || { $hydra && [ $found -ge 1 ]; } || {
        echo "$how: $found of $# are there:"
        printf '  wanted %s\n' "$@"
        sed 's/^/  said /' "$out"
        failures=$((failures + 1))
    }
}

# MPICH's launcher alone can name the process that died.
if $hydra; then
    check die 8 'PID [0-9]+ RUNNING AT|signal 9'
else
    check die 8 '^rank [023]: .*rank 1 \(process [0-9]+\) is gone; it was last seen in step 2, forward, model.layers.3 \(matmul'
fi
check hang 8 '^rank [023]: rank . has waited 1.* in all_reduce: sum of 4 f32 among all 4 ranks at model.layers.3 \(all_reduce, fault.c:8\) for .*rank 1, which is in step 2, forward, model.layers.3 \(matmul, fault.c:7\), for' \
    '^log: rank . has waited 0.* for .*rank 1'
# Whoever is out of patience first says so to the others: the chain 0 - 3 - 2 - 1 is named either way.
check halt 10 '^rank [03]: rank . (has )?wait.* rank 1, which is in step 2, .*; its process is stopped' \
    '^log: rank 0 has waited .* for rank 3, .*; the wait is for rank 1, which is in step 2, .*; its process is stopped'
check leave 8 '^rank 1: loss is NaN' '^rank [023]: .*rank 1 has stopped: loss is NaN'
check order 8 '^rank [023]: the ranks. collectives differ .*rank . calls all_reduce: sum of 4 f32 .* at model.layers.3 \(all_reduce, fault.c:8\); rank 1 calls all_gather of 4 \(1 \+ 1 \+ 1 \+ 1\) f32 .* at model.layers.9 \(all_gather, odd.c:9\)' \
    '^rank 1: the ranks. collectives differ .*rank 1 calls all_gather'
check size 8 'rank . waits for .* bytes from rank . in all_reduce: .* came: their collectives differ \(parallel.check=true says where\)'
check hello 8 '^rank 0: the configuration differs between ranks: lr=1 on rank 0, 2, 3; lr=2 on rank 1\. It must' '^rank 1: the configuration differs'
[ $failures = 0 ] || exit 1
echo "die, hang, halt, leave, order, size, hello: each named"
