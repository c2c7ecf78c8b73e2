# What is promised to the last bit, through the program: the losses, gradient norms and final weights of one run against
# the same run with another lever, and against one that stopped and went on, in each precision.
# test_exact.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
cd "$scratch"
export OMP_NUM_THREADS=1
head -c 9000 "$2/docs/design.md" >text.md # 9 or 10 batches: 24 steps cross two epoch borders
for family in llama gpt2 mixtral; do
    case $family in
    llama) model='model_type: llama
  hidden_size: 32
  intermediate_size: 64
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 2
  max_position_embeddings: 64' ;;
    mixtral) model='model_type: mixtral
  hidden_size: 32
  intermediate_size: 48
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 2
  num_local_experts: 4
  num_experts_per_tok: 2
  max_position_embeddings: 64' ;;
    gpt2) model='model_type: gpt2
  n_embd: 32
  n_layer: 2
  n_head: 4
  n_positions: 64
  attn_pdrop: 0
  embd_pdrop: 0.1
  resid_pdrop: 0.1' ;;
    esac
    cat >$family.yaml <<END
model:
  $model
data:
  files: [text.md]
  val_fraction: 0
train:
  steps: 24
  batch_size: 16
  micro_batches: 2
  seq_len: 64
optimizer:
  lr: 3e-3
checkpoint:
  every: 7
  keep_max: 9
END
done

# numbers DIR: what a run gives, as text: each step's loss and gradient norm, and the weights' checksum.
numbers() {
    grep '"type": *"step"' "$1/metrics.jsonl" | sed 's/.*"step": *\([0-9]*\).*"loss": *\([^,]*\).*"grad_norm": *\([^,]*\).*/\1 \2 \3/'
    cksum <"$1/model/model.safetensors"
}

# same DIR OTHER WHAT
same() {
    numbers "$1" >one
    numbers "$2" >two
    cmp -s one two || die "$3: other bits: $(diff one two | head -4)"
    [ "$(wc -l <one)" = 25 ] || die "$3: $1 has not 24 steps"
    rm -rf "$2"
}

for family in llama gpt2; do
    run 0 train $family.yaml run.dir=A
    run 0 train $family.yaml run.dir=B
    same A B "$family, the same run twice"
    for lever in context.mode=pynative data.prefetch=0 data.prefetch=64 memory.recompute=full \
        memory.recompute=selective 'data.sink=true data.sink_size=5' 'data.sink=true data.sink_size=-1' \
        checkpoint.async=false 'data.sink=true data.sink_size=3 memory.recompute=full data.prefetch=1'; do
        run 0 train $family.yaml run.dir=B $lever
        same A B "$family, $lever"
    done
    rm -rf A
done

# Strict: any number of threads.
for family in llama gpt2 mixtral; do
    for precision in O0 O2; do
        run 0 train $family.yaml run.dir=A context.deterministic=strict context.threads=1 precision.level=$precision
        for threads in 2 3; do
            run 0 train $family.yaml run.dir=B context.deterministic=strict context.threads=$threads precision.level=$precision
            same A B "$family, $precision, strict, $threads threads"
        done
        rm -rf A
    done
done

# A run that went on from its checkpoint of step 7 or 14, in each precision. The loss scale of fp16 begins where it
# overflows and has a window of 5 steps, so that it is caught in mid-window.
for precision in 'precision.level=O0' 'precision.level=O1 precision.dtype=bf16' 'precision.level=O2 precision.dtype=bf16' \
    'precision.level=O3 precision.dtype=bf16' 'precision.level=auto precision.dtype=bf16' \
    'precision.level=O1 precision.dtype=fp16 precision.loss_scale.window=5' \
    'precision.level=O2 precision.dtype=fp16 precision.loss_scale.initial=1e9 precision.loss_scale.window=5' \
    'precision.level=O3 precision.dtype=fp16 precision.loss_scale.mode=fixed precision.loss_scale.initial=1024'; do
    run 0 train gpt2.yaml run.dir=A $precision
    for lever in context.mode=pynative memory.recompute=full 'data.sink=true data.sink_size=4'; do
        run 0 train gpt2.yaml run.dir=B $precision $lever
        same A B "$precision, $lever"
    done
    for step in 07 14; do
        cp -r A C
        for later in 07 14 21 24; do
            [ $later -le $step ] || rm -r "C/checkpoints/step-000000$later"
        done
        rm -r C/model
        run 0 resume C
        same A C "$precision, resumed from step $step"
    done
    rm -rf A
done
echo "$checks command lines"
