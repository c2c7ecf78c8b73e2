# teng verify: exit status and words, in both modes, of a model that holds and of one that is off.
# test_cli_verify.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
golden=$2/tests/data/golden
for family in gpt2 llama3 qwen2 qwen3 mixtral; do
    for mode in graph pynative; do
        run 0 verify "$golden/$family" "$golden/$family/golden.safetensors" --mode $mode --threads 1
        out "$mode mode"
        out 'tensors hold'
        out 'tolerance 2e-05: f32: '
    done
done
for precision in bf16 fp16; do
    for mode in graph pynative; do
        run 0 verify "$golden/qwen2" "$golden/qwen2/golden.safetensors" --mode $mode --precision $precision --threads 1
        out "$mode mode, $precision O2"
        out 'tensors hold'
    done
done
run 0 verify "$golden/qwen2" "$golden/qwen2/golden.safetensors" --precision bf16 --level O3 --threads 1 --json
out '"precision": "bf16"'
out '"level": "O3"'
run 0 verify "$golden/qwen3" "$golden/qwen3/golden.safetensors" --threads 1 --json
out '"holds": true'
out '"name": "grad.model.layers.1.self_attn.q_norm.weight"'
run 0 verify "$golden/gpt2" "$golden/gpt2/golden.safetensors" --threads 1 --all
[ "$(grep -c '^ok ' "$scratch/out")" = 31 ] || die 'verify --all does not print the 31 tensors of gpt2'

mkdir "$scratch/off"
cp "$golden/llama3/model.safetensors" "$scratch/off"
sed 's/"factor": 8.0/"factor": 9.0/' "$golden/llama3/config.json" >"$scratch/off/config.json"
run 1 verify "$scratch/off" "$golden/llama3/golden.safetensors" --threads 1
out 'OFF   logits '
out ' tensors are off, the worst is '
run 1 verify "$scratch/off" "$golden/llama3/golden.safetensors" --threads 1 --json
out '"holds": false'
run 1 verify "$golden/llama3" "$golden/qwen3/golden.safetensors" --threads 1
out 'OFF   logits '
run 1 verify "$golden/llama3" nothing.safetensors
err 'nothing.safetensors'
usage 'known: graph, pynative' verify "$golden/gpt2" "$golden/gpt2/golden.safetensors" --mode fast
echo "$checks command lines"
