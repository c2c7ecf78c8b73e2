# configs/finetune.yaml on a model folder made by teng: prompts are not scored, plain text works, and what lies beside the
# weights arrives with the trained model.
# test_finetune.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
export OMP_NUM_THREADS=1
cd "$scratch"

# A pretrained folder: two steps of a small model, and files as transformers puts beside one.
echo 'A text to begin with, long enough for a sequence of sixty-four bytes and the one behind them.' >start.txt
run 0 train "$source/configs/llama-tiny.yaml" run.dir=pre data.files=start.txt data.val_fraction=0 train.steps=2 \
    train.seq_len=64 train.batch_size=2 model.hidden_size=48 model.num_hidden_layers=1 model.intermediate_size=96
base=pre/model
printf '{"eos_token": "<|endoftext|>", "model_max_length": 1000000000000000019884624838656}' >$base/tokenizer_config.json
printf '{"eos_token_id": [256, 7], "temperature": 0.6}' >$base/generation_config.json
for side in chat_template.jinja tokenizer.model special_tokens_map.json added_tokens.json vocab.json merges.txt; do
    echo "content of $side" >$base/$side
done

# Prompts that cannot be foreseen, one completion: all that is scored can be learned.
i=0
while [ $i -lt 60 ]; do
    word=$(printf '%s' "$i and its salt" | cksum | cut -c1-9)
    echo "{\"prompt\": \"$word \", \"completion\": \"yes\"}" >>pairs.jsonl
    echo "{\"text\": \"$word yes\"}" >>texts.jsonl
    i=$((i + 1))
done
loss() { # of the documents that a run held back
    sed -n 's/.*"val_loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tail -n 1
}
few='data.val_fraction=0.1 train.steps=40 train.eval_every=0 train.seq_len=32 optimizer.lr=1e-2'
run 0 train "$source/configs/finetune.yaml" model.from=$base data.files=pairs.jsonl run.dir=pairs $few
run 0 train "$source/configs/finetune.yaml" model.from=$base data.files=texts.jsonl run.dir=texts $few
pairs=$(loss pairs) texts=$(loss texts)
echo "$pairs $texts" | awk '{ exit !($1 < 0.3 && $2 > 0.8) }' || die "losses $pairs of completions and $texts of whole texts"
run 0 generate pairs/model --prompt '123456789 ' --max-tokens 8 --temperature 0 --json
out '"text": "yes"'

# The folder: every file, byte for byte, and a configuration that says what the weights are now.
for side in tokenizer.json tokenizer_config.json generation_config.json chat_template.jinja tokenizer.model \
    special_tokens_map.json added_tokens.json vocab.json merges.txt; do
    cmp "$base/$side" "pairs/model/$side" || die "$side did not arrive as it was"
done
grep -q '"dtype": "float32"' pairs/model/config.json || die 'config.json does not say float32'
run 1 model diff $base pairs/model
out '11 of 11 tensors differ'

# Convert takes them along too; half the bits go in and out.
run 0 model convert pairs/model half --dtype bf16
cmp $base/tokenizer.model half/tokenizer.model
cmp $base/generation_config.json half/generation_config.json
run 0 train "$source/configs/finetune.yaml" model.from=half data.files=start.txt run.dir=plain train.steps=2 train.seq_len=32
grep -q '"dtype": "float32"' plain/model/config.json || die 'a model trained on from bf16 does not say float32'

# A run that goes on keeps them.
run 0 resume pairs train.steps=42
cmp $base/chat_template.jinja pairs/model/chat_template.jinja

# What cannot be: no folder, no data.
run 1 train "$source/configs/finetune.yaml" data.files=pairs.jsonl run.dir=none
err 'model.from'
run 1 train "$source/configs/finetune.yaml" model.from=$base run.dir=none
err 'data.files'
run 1 train "$source/configs/finetune.yaml" model.from=elsewhere data.files=pairs.jsonl run.dir=none
err 'elsewhere'
echo "$checks command lines"
