# Training through the program: a small run, what its folder holds, resume, evaluation, generation, plan, signals.
# test_cli_run.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
cd "$scratch"
export OMP_NUM_THREADS=1 # the model is too small for more, and other tests run beside this one
cat >tiny.yaml <<END
run:
  dir: A
model:
  model_type: llama
  hidden_size: 32
  intermediate_size: 64
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 2
  max_position_embeddings: 64
data:
  files: [$source/docs/design.md]
  val_fraction: 0
train:
  steps: 12
  batch_size: 4
  seq_len: 32
END

run 0 train tiny.yaml
out 'model    llama, '
out 'parameters'
out 'step     4 sequences of 32: 128 tokens'
out 'graph mode'
out 'run      A, 12 steps'
out 'step 12/12'
out 'teng generate A'
[ "$(grep -c '"type": *"step"' A/metrics.jsonl)" = 12 ] || die 'A/metrics.jsonl has no 12 steps'
[ -s A/log.txt ] || die 'A/log.txt is missing'
grep -q 'step 12/12' A/log.txt || die 'A/log.txt lacks the last step'
[ -s A/model/config.json ] || die 'A/model is no model folder'
run 1 train tiny.yaml
err 'teng train: '
run 0 train tiny.yaml run.dir=Q --quiet
[ ! -s out ] || die "--quiet printed: $(cat out)"
grep -q 'step 12/12' Q/log.txt || die 'Q/log.txt lacks the last step'

run 0 resume A train.steps=16
out 'run      A, from step 12 to 16'
[ "$(grep -c '"type": *"step"' A/metrics.jsonl)" = 16 ] || die 'A/metrics.jsonl has no 16 steps after resume'
# The place in the data means something in the same data alone: as long and other, longer, and as it was.
cp "$source/docs/design.md" text.md
run 0 train tiny.yaml run.dir=T data.files=text.md train.steps=2
tr a b <"$source/docs/design.md" >text.md
run 1 resume T train.steps=4
err 'T/checkpoints/step-00000002 was made with other training data: data.files had '
err ' tokens then and has others, also '
{ cat "$source/docs/design.md" && echo more; } >text.md
run 1 resume T train.steps=4
err ' tokens then and has '
[ "$(grep -c '"type": *"step"' T/metrics.jsonl)" = 2 ] || die 'a refused resume changed T'
cp "$source/docs/design.md" text.md
run 0 resume T train.steps=4

run 0 eval A "$source/docs/design.md" --seq-len 32
out 'nats per token'
run 0 eval A/model "$source/docs/design.md" --seq-len 32 --json
out '"bits_per_byte"'
run 0 generate A --prompt 'The ' --max-tokens 8 --seed 3 --json
cp out first
run 0 generate A --prompt 'The ' --max-tokens 8 --seed 3 --json
cmp -s out first || die 'the same seed gives another text'
run 0 generate A --prompt 'The ' --max-tokens 8 --seed 3
out 'The '
printf 'The ' >prompt
run 0 generate A --prompt-file prompt --max-tokens 8 --seed 3 --json
cmp -s out first || die 'a prompt from a file gives another text'
run 1 generate none --prompt x
err 'none'
run 0 plot A Q --out loss.svg
out 'loss of 2 runs'

# fp16 with a loss scale far too large: overflows are named and dropped, no batch and no step is, training goes on.
run 0 train tiny.yaml run.dir=F train.steps=4 train.eval_every=1 "data.val_files=[$source/docs/design.md]" checkpoint.every=1 precision.level=O2 \
    precision.dtype=fp16 precision.loss_scale.initial=1e30
out 'mode, fp16 O2'
grep -qF 'step 1 was dropped: loss ' F/log.txt || die 'fp16: no overflow was reported'
grep -qF 'first in the backward pass, layer model (cast' F/log.txt || die 'fp16: the overflow has no place'
grep -qF 'the loss scale was 1e+30, the same batch is tried again with 5e+29' F/log.txt || die 'fp16: no scale'
[ "$(grep -c '"type": *"step"' F/metrics.jsonl)" = 4 ] || die 'F/metrics.jsonl has no 4 steps'
[ "$(grep -c '"type": *"eval"' F/metrics.jsonl)" = 4 ] || die 'F/metrics.jsonl has no 4 evaluations'
[ "$(grep -c 'was dropped' F/metrics.jsonl)" -gt 40 ] || die 'F/metrics.jsonl has too few overflows'
run 1 train tiny.yaml run.dir=G precision.level=O2 precision.loss_scale.initial=4
err 'precision.loss_scale.initial is set and the run computes in bf16, whose range needs no loss scale'
run 1 train tiny.yaml run.dir=G precision.level=O2 'precision.keep_fp32=["*.nrm"]'
err 'precision.keep_fp32: "*.nrm" matches no layer of the model'
[ ! -e G ] || die 'a refused run left a folder'
run 0 plan tiny.yaml precision.level=O1 --casts
out 'model.layers.0.mlp.up_proj.weight f32->bf16'

run 0 plan tiny.yaml
out 'parameters'
run 0 plan tiny.yaml --steps --memory
[ -s out ] || die 'plan --steps --memory prints nothing'
run 0 plan tiny.yaml --dot
out 'digraph'
run 0 plan tiny.yaml --json
[ "$(head -c 1 out)" = '{' ] || die 'plan --json prints no object'
[ -z "$(tail -c 1 out)" ] || die 'plan --json ends without a newline'

# Signals: the run is saved, says how to go on, and the status names the signal.
for signal in INT TERM; do
    "$teng" train tiny.yaml run.dir=$signal train.steps=1000000 >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    n=0
    until grep -q '"type": *"step"' $signal/metrics.jsonl 2>/dev/null; do
        n=$((n + 1))
        [ $n -lt 600 ] || die "no step after a minute: $(cat "$scratch/out" "$scratch/err")"
        sleep 0.1
    done
    # A background process of a script ignores SIGINT unless it asks for it; the program does.
    kill -$signal $pid
    status=0
    wait $pid || status=$?
    said="teng train, SIG$signal"
    [ $signal = INT ] && want=130 || want=143
    [ $status = $want ] || die "$said: exit status $status, wanted $want: $(cat "$scratch/out" "$scratch/err")"
    out "teng resume $signal"
    err 'Stopping after this step'
    done_steps=$(sed -n 's/.*Stopped after step \([0-9]*\) of.*/\1/p' "$scratch/out")
    run 0 resume $signal train.steps=$((done_steps + 2))
    out "from step $done_steps to"
done
echo "$checks command lines"
