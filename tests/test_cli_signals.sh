# No thread that computes takes a signal: oneDNN's fp32 products for AVX-512 keep the address of a heap block in the
# stack pointer, and a handler's frame there breaks the heap (docs/decisions/0009-signals.md). Seen from outside, for
# every kernel: one thread waits for INT, TERM and USR1, all others block them, and none of them has a handler.
# test_cli_signals.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
cd "$scratch"
[ -r /proc/self/task ] || { echo "skipped: no /proc"; exit 77; }
cat >small.yaml <<END
model: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4}
data: {files: [$source/docs/design.md], val_fraction: 0}
train: {steps: 1000000, batch_size: 8, seq_len: 64}
context: {threads: 2}
END
watched=$((0x4202)) # INT is bit 1, USR1 bit 9, TERM bit 14

# mask FIELD FILE: the lower bits of a set of signals in /proc
mask() {
    echo $((0x$(sed -n "s/^$1:.*\(........\)$/\1/p" "$2") & watched))
}

# look PID WHAT: at every thread of that process, when something computes beside the main thread
look() {
    waiting=0 n=0
    until [ "$(ls /proc/"$1"/task | wc -l)" -ge 3 ]; do
        n=$((n + 1))
        [ $n -lt 1200 ] || die "$2: fewer than 3 threads"
        sleep 0.05
    done
    for task in /proc/"$1"/task/*; do
        cp "$task/status" status 2>/dev/null || continue # it ended
        [ "$(mask SigCgt status)" = 0 ] || die "$2: a handler is installed: $(cat status)"
        if [ "$(sed -n 's/^Name:[[:space:]]*//p' status)" = signals ]; then
            waiting=$((waiting + 1)) # while it waits, the kernel shows them as not blocked
        else
            [ "$(mask SigBlk status)" = $watched ] || die "$2: a thread takes signals: $(cat status)"
        fi
    done
    [ $waiting = 1 ] || die "$2: $waiting threads wait for signals"
    checks=$((checks + 1))
}

# stop PID WANT: asked by SIGTERM, it ends with that status
stop() {
    kill -TERM "$1"
    status=0
    wait "$1" || status=$?
    [ $status = "$2" ] || die "exit status $status after SIGTERM, wanted $2: $(cat out err)"
}

# until_there FILE TEXT PID: within a minute
until_there() {
    n=0
    until grep -q "$2" "$1" 2>/dev/null; do
        n=$((n + 1))
        kill -0 "$3" 2>/dev/null && [ $n -lt 1200 ] || die "no \"$2\" in $1: $(cat out err)"
        sleep 0.05
    done
}

# A handler or a mask that the parent left behind changes nothing: a shell's background jobs ignore INT.
for mode in graph pynative; do
    "$teng" train small.yaml run.dir=$mode context.mode=$mode >out 2>err &
    pid=$!
    until_there $mode/metrics.jsonl '"type": *"step"' $pid
    look $pid "train, $mode"
    stop $pid 143
    "$teng" resume $mode >out 2>err &
    pid=$!
    until_there out 'step' $pid
    look $pid "resume, $mode"
    stop $pid 143
done

# Before there is a run, a signal ends the program as it ends any.
mkfifo slow.yaml
"$teng" train slow.yaml >out 2>err &
pid=$!
exec 9>slow.yaml # the program reads it: the signals are watched
stop $pid 143

mkdir saves
"$teng" bench checkpoint default context.threads=2 --dir saves --saves 1000 >out 2>err &
pid=$!
until [ -n "$(ls saves)" ]; do
    kill -0 $pid 2>/dev/null || die "bench checkpoint ended: $(cat out err)"
    sleep 0.05
done
look $pid "bench checkpoint"
stop $pid 143
[ -z "$(ls saves)" ] || die "bench checkpoint leaves $(ls saves)"
echo "$checks command lines"
