# context.products=measured through the program: chosen once and kept, by machine and by run; resumed runs keep what they
# began with; the same bits from the same ways; a plan of one rank of many measures nothing.
# test_products_run.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
cd "$scratch"
export OMP_WAIT_POLICY=passive XDG_CACHE_HOME="$scratch/cache"
head -c 9000 "$2/docs/design.md" >text.md
cat >gpt2.yaml <<END
model: {model_type: gpt2, n_embd: 256, n_layer: 1, n_head: 4, n_positions: 64, attn_pdrop: 0, embd_pdrop: 0, resid_pdrop: 0}
data: {files: [text.md], val_fraction: 0.1, separator: "\\n\\n"}
train: {steps: 8, batch_size: 16, micro_batches: 2, seq_len: 64, eval_every: 4}
checkpoint: {every: 3, keep_max: 9}
context: {threads: 2, products: measured}
END

# numbers DIR: each step's loss and gradient norm, and the weights' checksum.
numbers() {
    grep '"type": *"step"' "$1/metrics.jsonl" | sed 's/.*"step": *\([0-9]*\).*"loss": *\([^,]*\).*"grad_norm": *\([^,]*\).*/\1 \2 \3/'
    cksum <"$1/model/model.safetensors"
}
same() {
    numbers "$1" >one
    numbers "$2" >two
    cmp -s one two || die "$3: other bits: $(diff one two | head -4)"
    cmp -s "$1/products.json" "$2/products.json" || die "$3: other ways: $(diff "$1/products.json" "$2/products.json")"
}

# Wanted and not possible.
run 1 train gpt2.yaml run.dir=X context.mode=pynative
err 'context.products'
run 1 train gpt2.yaml run.dir=X context.deterministic=strict
err 'context.deterministic = strict'

# By sizes: listed, without a rate, and nothing is measured.
run 0 plan gpt2.yaml context.products=sizes
out 'the way by sizes'
out '512 × 768 × 256 f32, bias'
run 0 plan gpt2.yaml context.products=sizes --json
out '"peak_share": null'
run 0 plan gpt2.yaml parallel.tensor=4 parallel.data=128 train.batch_size=256 --rank 37
out 'they are measured when the ranks start'
[ -z "$(ls cache/teng/products-* 2>/dev/null)" ] || die 'a plan of sizes, or of one rank of many, measured'

run 0 plan gpt2.yaml
out ' measured in '
out 'GFLOP/s, share of the peak'
file=$(ls cache/teng/products-*)
cp "$file" kept.json
run 0 plan gpt2.yaml --json
out '"way": '
cmp -s "$file" kept.json || die 'ways of the cache were measured again'

run 0 train gpt2.yaml run.dir=A
run 0 train gpt2.yaml run.dir=B
cmp -s "$file" kept.json || die 'training measured what the plan had measured'
same A B 'the same run twice'

# Resumed from step 3 or 6, with another cache, a broken one and none: as it began.
sed 's/"way": *"[^"]*"/"way": "as stored"/' "$file" >other.json
cmp -s other.json kept.json && die 'sed changed nothing'
for step in 03 06; do
    rm -rf B
    cp -r A B
    for later in 03 06 08; do
        [ $later -le $step ] || rm -r "B/checkpoints/step-000000$later"
    done
    cp other.json "$file"
    [ $step = 03 ] || echo '{"gemm": 1' >"$file"
    run 0 resume B
    same A B "resumed from step $step"
done
rm -r B
cp other.json "$file"
run 0 train gpt2.yaml run.dir=B
grep -q '"as stored"' B/products.json || die 'the cache was not used'

# A broken cache is measured anew, and said.
echo '{"gemm": 1' >"$file"
rm -r B
run 0 train gpt2.yaml run.dir=B
err 'products are measured anew'
grep -q '"products"' "$file" || die 'the broken cache was left as it was'
rm B/products.json
run 0 resume B train.steps=9
err 'products.json is gone'
[ -s B/products.json ] || die 'a resumed run kept no ways'
echo "$checks command lines"
