# teng model convert, info and diff of runs: a killed one's last whole checkpoint, one checkpoint of several; and of a
# model that is larger than the memory that may be used. test_cli_convert.sh TENG SOURCE
set -eu
source=$2
. "$(dirname "$0")/cli_common.sh"
export OMP_NUM_THREADS=1
cd "$scratch"

cat >config.yaml <<END
model: {model_type: llama, vocab_size: 257, hidden_size: 256, intermediate_size: 1024, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 64}
data: {files: [$source/docs/design.md], val_fraction: 0}
train: {batch_size: 2, seq_len: 8, eval_every: 0}
optimizer.name: sgd
END
run 0 train config.yaml run.dir=whole train.steps=1 --quiet
bytes=$(wc -c <whole/model/model.safetensors)
[ "$bytes" -gt 20000000 ] || die "a model of $bytes bytes is too small for this test"

# A run that was killed has checkpoints, and no whole model folder.
"$teng" train config.yaml run.dir=killed train.steps=100000 checkpoint.every=1 checkpoint.keep_max=5 --quiet >/dev/null 2>&1 &
process=$!
for i in $(seq 300); do
    set -- killed/checkpoints/step-*
    [ -e "${3:-}" ] && break
    sleep 0.05
done
kill -9 $process
wait $process 2>/dev/null || true
before= last=
for path in killed/checkpoints/step-????????; do
    [ -e "$path/state.json" ] || continue
    before=$last
    last=$path
done
[ -n "$before" ] || die "no two checkpoints of the killed run"
run 0 model convert killed exported
run 0 model diff exported "$last"
out '0 of '
run 0 model diff killed exported
run 0 model info killed
run 1 model diff exported "$before" # another step's
run 0 model convert "$before" exported # one checkpoint
run 0 model diff "$before" exported
# The newest is damaged: the one before it counts, as for `teng resume`.
truncate -s -100 "$last/model.safetensors"
run 0 model convert killed exported
run 0 model diff "$before" exported
run 1 model convert killed/checkpoints exported
err 'holds no model: neither config.json (a model folder) nor model/config.json (a run folder, or one of its checkpoints)'
run 1 model convert "$scratch/none" exported
err 'none is not a folder'

# 8 MB of data may be used, of which the program takes some; the model has 25 MB and is converted, counted, compared.
limit() {
    (ulimit -d 8000 && "$teng" "$@" >out.txt 2>&1) || die "teng $* with 8 MB: $(cat out.txt)"
    checks=$((checks + 1))
}
limit model convert whole half --dtype bf16
limit model convert half back --dtype f32 --shard-size 4MB
limit model info whole
(ulimit -d 8000 && "$teng" model diff whole back >out.txt 2>&1) && die 'bf16 has the bits of f32'
grep -q 'tensors differ' out.txt || die "diff with 8 MB: $(cat out.txt)"
run 0 model diff whole whole/model
echo "$checks command lines"
