# A run killed with -9 at random moments and resumed until it is done gives the losses and the weights of an undisturbed
# one, bit for bit; so does one that is stopped by signals; a disk that is full while saving stops nothing.
# test_kill_resume.sh TENG SOURCE_DIR KILLS
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
kills=$3
cd "$scratch"
cat >small.yaml <<END
model:
  model_type: llama
  hidden_size: 64
  intermediate_size: 128
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 2
  tie_word_embeddings: true
data:
  files: [$source/docs/design.md]
  val_fraction: 0
train:
  steps: 120
  batch_size: 8
  seq_len: 64
checkpoint:
  every: 5
END

# losses RUN: "step":N,"loss":X of every step line, in order.
losses() {
    grep '"type": *"step"' "$1/metrics.jsonl" | sed 's/.*\("step": *[0-9]*\).*\("loss": *[^,]*\).*/\1 \2/'
}

# same RUN: as the undisturbed run U.
same() {
    losses "$1" >"$1.losses"
    cmp -s U.losses "$1.losses" || die "$1 has other losses than U: $(diff U.losses "$1.losses" | head -5)"
    cmp -s U/model/model.safetensors "$1/model/model.safetensors" || die "$1 has other weights than U"
}

# A number of milliseconds below $1, as sleep wants it.
moment() {
    echo "$(od -An -N4 -tu4 /dev/urandom) $1" | awk '{ printf "%.3f", ($1 % $2) / 1000 }'
}

run 0 train small.yaml run.dir=U --quiet
losses U >U.losses
[ "$(wc -l <U.losses)" = 120 ] || die "U has $(wc -l <U.losses) steps"

# ---- kill -9: run after run, until there were enough kills ----
done_kills=0
rounds=0
while [ $done_kills -lt "$kills" ]; do
    rounds=$((rounds + 1))
    longest=300
    rm -rf C
    until [ -e C/metrics.jsonl ] && [ "$(losses C | wc -l)" -ge 120 ] && [ "$status" = 0 ]; do
        if [ -e C/config.yaml ]; then set -- resume C; else set -- train small.yaml run.dir=C; fi
        "$teng" "$@" --quiet >out 2>err &
        pid=$!
        sleep "$(moment $longest)"
        kill -9 $pid 2>/dev/null && done_kills=$((done_kills + 1))
        longest=$((longest * 11 / 10)) # a slow machine must come to its next checkpoint in the end
        status=0
        wait $pid 2>/dev/null || status=$?
        [ $status = 0 ] || [ $status = 137 ] ||
            die "teng $*: exit status $status after $done_kills kills: $(cat out err)"
    done
    same C
done
echo "killed $done_kills times in $rounds runs"

# ---- signals: INT and TERM by turns, until it is done ----
"$teng" train small.yaml run.dir=S --quiet >out 2>err &
pid=$!
for signal in INT TERM INT; do
    n=0
    until [ "$(losses S 2>/dev/null | wc -l)" -gt "$(cat S.seen 2>/dev/null || echo 0)" ] || ! kill -0 $pid 2>/dev/null; do
        n=$((n + 1))
        [ $n -lt 3000 ] || die "no step after a minute: $(cat out err)"
        sleep 0.02
    done
    kill -$signal $pid 2>/dev/null || break # it was faster
    status=0
    wait $pid || status=$?
    losses S | wc -l >S.seen
    if [ $status = 0 ]; then break; fi # the signal came behind the last step
    [ $signal = INT ] && want=130 || want=143
    [ $status = $want ] || die "SIG$signal: exit status $status, wanted $want: $(cat out err)"
    grep -q 'teng resume S' err || die "SIG$signal: how to go on is not said: $(cat out err)"
    "$teng" resume S --quiet >out 2>err &
    pid=$!
done
wait $pid || true
run 0 resume S --quiet
same S

# ---- a full disk: no file may grow beyond 64 KiB, then it may ----
status=0
(ulimit -f 128 && exec "$teng" train small.yaml run.dir=F train.steps=120) >out 2>err || status=$?
[ $status = 1 ] || die "a full disk at the last save: exit status $status: $(cat out err)"
grep -q 'could not save: .*File too large.*training goes on and the next checkpoint tries again' out ||
    die "the failed save is not told: $(cat out err)"
grep -q 'the checkpoint of step 120 was not saved: .*`teng resume F` goes on' err || die "how to go on is not said: $(cat err)"
[ "$(losses F | wc -l)" = 120 ] || die "training did not go on: $(losses F | wc -l) steps"
[ -z "$(ls F/checkpoints 2>/dev/null)" ] || die "half a checkpoint was left: $(ls F/checkpoints)"
run 0 resume F --quiet
same F
echo "$checks command lines"
