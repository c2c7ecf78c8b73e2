# teng model info, convert, diff: what is written loads, says what it is, and differs as it must.
# test_cli_model.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
golden=$2/tests/data/golden
cd "$scratch"
run 0 model info "$golden/mixtral"
out 'mixtral, 133488 parameters'
out 'experts     4, of which a token sees 2'
out '2.04 MiB in O0'
run 0 model info "$golden/gpt2" --json
out '"family": "gpt2"'
out '"O3": '
for family in gpt2 llama3 qwen2 qwen3 mixtral; do
    run 0 model convert "$golden/$family" "$family.whole"
    run 0 model diff "$golden/$family" "$family.whole"
    out '0 of '
    run 0 model convert "$family.whole" "$family.cut" --shard-size 0.1MB
    [ -s "$family.cut/model.safetensors.index.json" ] || die "$family.cut has no index of its files"
    run 0 model diff "$family.cut" "$golden/$family"
    run 0 verify "$family.cut" "$golden/$family/golden.safetensors" --threads 1
done
run 0 model convert "$golden/llama3" half --dtype bf16
grep -q '"dtype": "bfloat16"' half/config.json || die 'half/config.json does not say bfloat16'
[ -s half/generation_config.json ] || die 'half has no generation_config.json'
run 1 model diff "$golden/llama3" half
out '21 of 21 tensors differ'
run 1 model diff "$golden/llama3" half --json
out '"same_bits": false'
run 0 model convert half again --dtype f32
run 0 model convert again half2 --dtype bf16
run 0 model diff half half2
run 1 model diff gpt2.whole llama3.whole
out 'only in the first'
out 'only in the second'
run 1 model info half/model.safetensors
err 'config.json'
run 1 model convert "$golden/llama3" "$golden/llama3/config.json"
usage 'is no bytes, or a size as' model convert half out --shard-size many
usage 'known: keep, f32, f16, bf16' model convert half out --dtype f8
echo "$checks command lines"
