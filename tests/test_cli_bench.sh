# teng bench: the contract's command lines on small models, figures as JSON and as text, wrong usage, nothing left behind.
# test_cli_bench.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
configs=$2/configs
mkdir "$scratch/here"
cd "$scratch/here"
tiny='model.n_layer=1 model.n_embd=32 model.n_head=4 train.seq_len=16 train.batch_size=2 context.threads=1'

# fields NAME…: the last answer has them.
fields() {
    for name in "$@"; do out "\"$name\": "; done
}

run 0 bench step "$configs/gpt2-124m.yaml" $tiny model.vocab_size=300 precision.level=O2 precision.dtype=bf16 --steps 3 --json
fields tokens_per_s mfu matmul_peak_gflops peak_rss_bytes planned_bytes steps_per_s step_ms flops_per_token startup_ms \
    plan_ms mode precision threads machine version
out '"precision": "O2"'
out '"micro_batches": 1'
out '"n": 3'
run 0 bench step "$configs/gpt2-124m.yaml" $tiny model.vocab_size=300 precision.level=O0 --steps 1 --no-peak --json
out '"mfu": null'
run 0 bench step default $tiny train.micro_batches=2 context.mode=pynative --steps 2 --warmup 0 --no-peak
out 'pynative'
out 'n 2)'
grep -q '^planned_bytes *-$' "$scratch/out" || die 'a plan in pynative mode'
run 0 bench startup default $tiny --runs 2 --json
fields startup_ms parts_ms first_step
run 0 bench startup $tiny --runs 1
out 'parts_ms.first_step'
run 0 bench checkpoint default $tiny --saves 1 --json
fields stall_ms stall_share step_ms_while_writing write_gb_s disk_gb_s
run 0 bench generate default $tiny --tokens 4 --passes 1 --threads 1 --json
fields tokens_per_s weight_bytes_per_token read_gb_s bandwidth_share
run 0 bench levers default $tiny --steps 1 --ms 0 --dir . --json
fields levers name baseline with speedup speedup_pairs memory_ratio article note words step_ms memory_bytes
for lever in graph fusion bf16 fp16 sink prefetch recompute_selective recompute_full accumulation offload offload_parameters offload_activations threads \
    parallel comm_fusion zero; do
    out "\"name\": \"$lever\""
done
run 0 bench levers default $tiny --steps 1 --ms 0 --only recompute_full --dir .
out 'memory.recompute=none -> memory.recompute=full'
run 0 bench levers default $tiny context.mode=pynative --steps 1 --ms 0 --only recompute_full --dir .
out 'Not measured: '
run 1 bench levers default $tiny --steps 1 --only turbo --dir .
err '"turbo" is no lever: there are graph, fusion'
run 0 bench levers default $tiny --only parallel --dir .
out 'Not measured: Training on 1 against n ranks'
usage 'unknown key "train.stepps"' bench levers default train.stepps=1
usage '--steps: 0 is out of range' bench levers --steps 0
run 1 bench levers no-such.yaml
err 'cannot open no-such.yaml'
run 1 bench levers default $tiny --only graph --dir "$configs/gpt2-124m.yaml"
err 'gpt2-124m.yaml'
run 0 bench peak --ms 1 --threads 1
out 'triad_gb_s'
run 0 bench op add --ms 1 --elements 4096 --dtype f32 --threads 1 --json
fields ops roofline gb_s bandwidth_gb_s
[ -z "$(ls)" ] || die "bench left $(ls) behind"

printf 'To measure is to know.\n' >text.txt
run 0 bench tokenizer --file text.txt --tokenizer bytes --threads 1 --train-vocab 260 --json
fields mb_per_s tokens ids_hash train_mb_per_s
out '"tokens": 23'
run 0 bench tokenizer --drawn-bytes 1000 --passes 1 --threads 1
out 'bytes_per_token'

usage '--steps: 0 is out of range' bench step default --steps 0
usage 'unknown key "train.stepps"; did you mean "train.steps"?' bench step default train.stepps=1
usage 'unknown key "train.stepps"' bench startup default train.stepps=1
usage 'CONFIG.yaml is missing' bench step
usage 'bench what?' bench
usage '--dtype: unknown word "f64"' bench op --dtype f64
run 1 bench step no-such.yaml
err 'cannot open no-such.yaml'
run 1 bench generate no-such.yaml
err 'cannot open no-such.yaml'
run 1 bench tokenizer --file no-such.txt
err 'cannot open no-such.txt'
run 1 bench op sofmax
err 'did you mean "softmax"?'
run 1 bench step default train.seq_len=65
err 'train.seq_len = 65 is more than the model'
mkdir folder
usage 'a model folder takes no key=value words' bench generate folder context.seed=2
run 1 bench generate folder
err 'folder holds no model'
echo "$checks command lines"
