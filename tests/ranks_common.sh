# Read (".") by the tests of runs on several ranks, after cli_common.sh. Tiny models, one thread a rank; skipped (77)
# where there is no mpirun or teng was built without MPI.
if [ -n "${TENG_MPIRUN:-}" ]; then # that of the MPI which teng is built with
    mkdir "$scratch/bin"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$TENG_MPIRUN" >"$scratch/bin/mpirun"
    chmod +x "$scratch/bin/mpirun"
    PATH=$scratch/bin:$PATH
fi
command -v mpirun >/dev/null 2>&1 || {
    echo 'skipped: no mpirun on the PATH'
    exit 77
}
. "$(dirname "$0")/mpi_env.sh"
cd "$scratch"

# config FAMILY: the file FAMILY.yaml of a model of that family, 20 steps long.
config() {
    case $1 in
    gpt2) model='n_embd: 32, n_layer: 4, n_head: 4, n_positions: 64, attn_pdrop: 0, resid_pdrop: 0, embd_pdrop: 0' ;;
    *) model='hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64' ;;
    esac
    case $1 in
    mixtral) model="$model, num_local_experts: 4, num_experts_per_tok: 2" ;;
    qwen3_moe) model="$model, head_dim: 8, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24" ;;
    qwen3) model="$model, head_dim: 8" ;;
    llama) model="$model, tie_word_embeddings: true" ;;
    esac
    cat >"$1.yaml" <<END
model: {model_type: $1, $model}
data: {files: [$source/docs/design.md], val_fraction: 0.1, separator: "\\n\\n"}
train: {steps: 20, batch_size: 8, seq_len: 32, eval_every: 10, eval_batches: 0}
optimizer.lr: 1e-3
END
}

# ranks N STATUS WORDS…: as run, on N ranks.
ranks() {
    n=$1
    want=$2
    shift 2
    said="mpirun -n $n teng $*"
    status=0
    timeout 100 mpirun -n "$n" "$teng" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
    [ "$status" = "$want" ] || die "$said: exit status $status, wanted $want; it said: $(tail -n 20 "$scratch/out" "$scratch/err")"
    checks=$((checks + 1))
}

# stopped RUN COPY [STEP]: a copy of the run as it was behind that step (10), of which it has a checkpoint.
stopped() {
    at=${3:-10}
    rm -rf "$2"
    mkdir "$2" "$2/checkpoints" "$2/model"
    cp "$1/config.yaml" "$1/tokenizer.json" "$1/log.txt" "$2/"
    cp "$1/model/config.json" "$2/model/"
    cp -r "$1/checkpoints/step-$(printf %08d "$at")" "$2/checkpoints/"
    awk -F'"step": *' -v at="$at" '$2 + 0 <= at' "$1/metrics.jsonl" >"$2/metrics.jsonl"
}

# equal_bytes A B WHAT: files or folders.
equal_bytes() {
    diff -r "$1" "$2" >why || die "$3: $(cat why)"
    checks=$((checks + 1))
}

# figures RUN: "step loss norm" a line, and "val step loss".
figures() {
    sed -n 's/.*"type": *"step", *"step": *\([0-9]*\),.*"loss": *\([-+.e0-9]*\),.*"grad_norm": *\([-+.e0-9]*\).*/\1 \2 \3/p
            s/.*"type": *"eval", *"step": *\([0-9]*\),.*"val_loss": *\([-+.e0-9]*\).*/val \1 \2/p' "$1/metrics.jsonl"
}

# same A B TOLERANCE [STEP]: as many figures, each within that relative distance; 0: the same text. Or those of one step.
same() {
    figures "$1" | sed -n "/^${4:+$4 }/p" >a.figures
    figures "$2" | sed -n "/^${4:+$4 }/p" >b.figures
    [ -n "${4:-}" ] && least=1 || least=10
    [ "$(wc -l <a.figures)" -ge "$least" ] || die "$1 has too few figures"
    awk -v limit="$3" '
        NR == FNR { a[FNR] = $0; n = FNR; next }
        { m = FNR
          split(a[FNR], x); split($0, y)
          for (i = 1; i in x || i in y; i++) {
              if (x[i] == y[i]) continue
              d = x[i] - y[i]; if (d < 0) d = -d
              s = x[i] < 0 ? -x[i] : x[i]
              if (limit == 0 || !(d <= limit * s)) { print "line " FNR ": " a[FNR] " and " $0; bad = 1; exit 1 }
          } }
        END { if (!bad && n != m) { print n " and " m " figures"; exit 1 } }' a.figures b.figures >why ||
        die "$2 does not agree with $1 within $3: $(cat why)"
    checks=$((checks + 1))
}

# What takes back all that a layout says: one rank.
alone='parallel.mode=semi_auto parallel.data=1 parallel.tensor=1 parallel.sequence=false parallel.pipeline=1
    parallel.schedule=1f1b parallel.chunks=1 parallel.context=1 parallel.expert=1 parallel.zero=0 parallel.shard_group=0'

# only WORDS…: these, and what takes back the rest of a layout.
only() {
    for word in $alone; do
        case " $*" in
        *" ${word%%=*}="*) ;;
        *) echo "$word" ;;
        esac
    done
    echo "$@"
}
