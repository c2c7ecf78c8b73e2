# context.products=measured on two ranks: one choice for all, whatever part of the step a rank has; a run that goes on keeps
# it. test_products_ranks.sh TENG SOURCE_DIR
set -eu
source=$2
. "$(dirname "$0")/cli_common.sh"
. "$(dirname "$0")/ranks_common.sh"
export XDG_CACHE_HOME="$scratch/cache"
cat >gpt2.yaml <<END
model: {model_type: gpt2, n_embd: 256, n_layer: 2, n_head: 4, n_positions: 64, attn_pdrop: 0, embd_pdrop: 0, resid_pdrop: 0}
data: {files: [$source/docs/design.md], val_fraction: 0}
train: {steps: 10, batch_size: 16, micro_batches: 2, seq_len: 64}
checkpoint: {every: 5, keep_max: 9}
context: {products: measured}
END
for layout in parallel.pipeline=2 parallel.tensor=2; do
    ranks 2 0 train gpt2.yaml run.dir=A $layout
    file=$(ls cache/teng/products-*)
    # The head's products: the last stage's alone, or of 129 entries on one rank and 128 on the other.
    case $layout in parallel.tensor=2) sizes='128 129' ;; *) sizes=257 ;; esac
    for n in $sizes; do
        grep -q "\"n\": $n,\$" A/products.json || die "$layout: no product of $n columns: $(cat A/products.json)"
    done
    stopped A C 5
    cp A/products.json C/
    sed -i 's/"way": *"[^"]*"/"way": "as stored"/' "$file"
    ranks 2 0 resume C
    same A C 0
    equal_bytes A/products.json C/products.json "$layout, the ways of a run that went on"
    rm -rf A C cache/teng
done
echo "$checks checks"
