# What ranks refuse before the first step, and what happens when one of them fails, is stopped or is killed.
# test_ranks_faults.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
. "$(dirname "$0")/ranks_common.sh"
config llama
cfg=llama.yaml

# pair STATUS "WORDS of rank 0" "WORDS of rank 1": one run whose ranks are told different things.
pair() {
    said="mpirun teng $2 : teng $3"
    status=0
    # shellcheck disable=SC2086 # words are meant
    timeout 60 mpirun -n 1 "$teng" $2 : -n 1 "$teng" $3 >out 2>err </dev/null || status=$?
    [ "$status" = "$1" ] || die "$said: exit status $status, wanted $1: $(tail -c 1500 out err)"
    checks=$((checks + 1))
}
refused() {
    err "$1"
    [ "$(grep -c '^teng ' err)" = 1 ] || die "$said: told more than once: $(tail -c 1500 err)"
    [ ! -e F ] || die "$said: a run folder was made"
}

ranks 2 1 train $cfg run.dir=F
refused '2 ranks run, and no key says what they share: set parallel.data = 2'
ranks 2 1 train $cfg run.dir=F parallel.data=4
refused '= 4 ranks, and 2 run'
run 1 train $cfg run.dir=F parallel.data=2
refused '= 2 ranks, and 1 run; start so many (mpirun -n 2 teng …)'
ranks 2 1 train $cfg run.dir=F parallel.tensor=2 model.num_attention_heads=1 model.num_key_value_heads=1
refused 'parallel.tensor = 2 does not divide model.num_attention_heads = 1'
ranks 2 1 train $cfg run.dir=F parallel.data=2 train.batch_size=3
refused 'train.batch_size = 3 cannot be cut into 2 data ranks'
ranks 2 2 train $cfg run.dir=F parallel.dta=2
err 'did you mean "parallel.data"?'
ranks 2 1 train $cfg run.dir=F parallel.tensor=2 context.mode=pynative
refused 'set context.mode = graph'
pair 1 "train $cfg run.dir=F parallel.data=2" "train $cfg run.dir=F parallel.data=2 optimizer.lr=2e-3"
refused 'rank 1: optimizer.lr is 0.001 on rank 0 and 0.002 on rank 1'

# Two hosts whose files differ under one name: here folders that are the process's own.
here=/proc/self/cwd
mkdir host0 host1
cp "$source/docs/design.md" host0/text.md
sed 's/teng/tang/g' "$source/docs/design.md" >host1/text.md
# hosts WORDS…: a rank in each.
hosts() {
    said="mpirun on two hosts: teng $*"
    status=0
    timeout 60 mpirun -n 1 -wdir "$scratch/host0" "$teng" "$@" : -n 1 -wdir "$scratch/host1" "$teng" "$@" \
        >out 2>err </dev/null || status=$?
    [ "$status" = 1 ] || die "$said: exit status $status: $(tail -c 1500 out err)"
    checks=$((checks + 1))
}
hosts train "$scratch/$cfg" "run.dir=$scratch/F" parallel.data=2 "data.files=[$here/text.md]"
refused 'rank 1: the sample of data.files (a hash) is '
for host in 0 1; do
    run 0 train $cfg "run.dir=start$host" train.steps=$((host + 1)) train.eval_every=0
    mv "start$host/model" "host$host/model"
done
cat >from.yaml <<END
data: {files: [$source/docs/design.md], val_fraction: 0}
train: {steps: 20, batch_size: 8, seq_len: 32}
END
hosts train "$scratch/from.yaml" "run.dir=$scratch/F" parallel.data=2 "model.from=$here/model"
err 'before the first step: model.'
err 'is not the same on rank 0 and rank 1'
rm -rf F # taken, and empty but for its lock

config mixtral
ranks 2 1 train mixtral.yaml run.dir=F parallel.data=2 context.mode=pynative
refused 'auxiliary loss'

# start NAME WORDS…: a long run of two ranks in the background, up to its first checkpoint; $pids: its ranks.
start() {
    name=$1
    shift
    mpirun -n 2 "$teng" train $cfg "run.dir=$name" train.steps=100000 checkpoint.every=10 train.eval_every=0 "$@" \
        >out 2>err </dev/null &
    job=$!
    i=0
    # Any whole one: the first may be pruned before it is looked for.
    until ls "$name"/checkpoints/step-*[0-9]/state.json >/dev/null 2>&1; do
        i=$((i + 1))
        [ $i -lt 300 ] || die "$name: no checkpoint in 30 s: $(tail -c 1500 out err)"
        sleep 0.1
    done
    # As the banner says: between mpirun and its ranks there may be another process (MPICH).
    pids=$(sed -n 's/.*rank [01] of 2 on .*(process \([0-9]*\)).*/\1/p' "$name/log.txt")
    # shellcheck disable=SC2086 # two words are meant
    [ "$(echo $pids | wc -w)" = 2 ] || die "$name: the banner does not name two ranks: $(cat "$name/log.txt")"
}

# A rank that cannot write its part: no checkpoint of that step, all are told, and the run goes on.
if command -v prlimit >/dev/null 2>&1; then
    start W parallel.data=2 parallel.zero=3
    second=$(echo $pids | cut -d' ' -f2)
    prlimit --pid "$second" --fsize=64:
    i=0
    until grep -q 'could not save: rank 1: the checkpoint of step' out err; do
        i=$((i + 1))
        [ $i -lt 300 ] || die "a rank without room was not told: $(tail -c 1500 out err)"
        sleep 0.1
    done
    prlimit --pid "$second" --fsize=unlimited:
    kill -TERM "$second"
    status=0
    wait $job || status=$?
    [ "$status" = 143 ] || die "a run of a rank that had no room for a while: exit status $status: $(tail -c 1500 out err)"
    ! ls W/checkpoints | grep -q tmp || die "half a checkpoint: $(ls W/checkpoints)"
    steps=$(($(grep -c '"type": *"step"' W/metrics.jsonl) + 2))
    ranks 2 0 resume W "train.steps=$steps"
fi

# kill -9: named, within 10 s, the last checkpoint is whole, and the run goes on.
start K parallel.data=2
victim=$(echo $pids | cut -d' ' -f2)
began=$(date +%s)
kill -9 "$victim"
status=0
wait $job || status=$?
took=$(($(date +%s) - began))
[ "$status" != 0 ] || die 'a run whose rank was killed ended well'
[ "$took" -le 10 ] || die "the others noticed after $took s"
# By the other ranks; the launcher of MPICH kills them at once, and names the process.
grep -q -e 'teng train: .*rank [01] (process' -e "PID $victim RUNNING AT" out err ||
    die "the rank that was killed is not named: $(tail -c 1500 out err)"
last=$(ls K/checkpoints | grep -v tmp | tail -1)
steps=$(($(echo "${last#step-}" | sed 's/^0*//') + 3))
ranks 2 0 resume K "train.steps=$steps"
[ "$(grep -c '"type": *"step"' K/metrics.jsonl)" = "$steps" ] || die 'a restart after a kill lost steps'

# SIGTERM on one rank stops all at the same step, saved.
start S parallel.data=2
kill -TERM "$(echo $pids | cut -d' ' -f2)"
status=0
wait $job || status=$?
[ "$status" = 143 ] || die "a stopped run ended with $status: $(tail -c 1500 out err)"
grep -q 'everything is saved' out || die "a stopped run does not say so: $(tail -c 1500 out err)"
done=$(grep -c '"type": *"step"' S/metrics.jsonl)
ranks 2 0 resume S "train.steps=$((done + 2))"
[ "$(grep -c '"type": *"step"' S/metrics.jsonl)" = "$((done + 2))" ] || die 'a stopped run does not go on where it stopped'

# SIGTERM in the middle of a step that takes longer than the second which Open MPI's mpirun leaves its ranks: the step
# ends, all is saved, and the run goes on behind it.
"$teng" launch -n 2 train "$source/configs/llama-tiny.yaml" data.files="[$source/docs/design.md]" run.dir=L \
    data.val_fraction=0 train.eval_every=0 parallel.data=2 train.batch_size=1024 train.micro_batches=128 train.steps=1000 \
    >out 2>err </dev/null &
i=0
until grep -q '"type": *"step", *"step": *1,' L/metrics.jsonl 2>/dev/null; do
    i=$((i + 1))
    [ $i -lt 600 ] || die "no step in 60 s: $(tail -c 1500 out err)"
    sleep 0.1
done
kill -TERM $!
status=0
wait $! || status=$?
[ $status = 143 ] || die "launch, SIGTERM: exit status $status: $(tail -c 1500 out err)"
grep -q 'everything is saved' out || die "launch, SIGTERM: it does not say so: $(tail -c 1500 out err)"
steps=$(grep -c '"type": *"step"' L/metrics.jsonl)
[ "$steps" -ge 2 ] || die "the step was not ended: $steps steps"
[ -d "L/checkpoints/step-$(printf %08d "$steps")" ] || die "step $steps was not saved: $(ls L/checkpoints)"
run 0 launch -n 2 resume L train.steps=$((steps + 1))
[ "$(grep -c '"type": *"step"' L/metrics.jsonl)" = $((steps + 1)) ] || die 'it does not go on where it stopped'
echo "$checks checks passed"
