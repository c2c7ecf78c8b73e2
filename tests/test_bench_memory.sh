# A step of GPT-2 124M keeps to its plan: what is resident at the peak, less the program and its libraries, is within
# 2 % of planned_bytes. The kernels' own short-lived memory and the heap's holes count. test_bench_memory.sh TENG SOURCE
set -eu
. "$(dirname "$0")/cli_common.sh"
for words in 'precision.level=O0' 'precision.level=O2 precision.dtype=bf16'; do
    # shellcheck disable=SC2086 # words are meant
    run 0 bench step "$2/configs/gpt2-124m.yaml" $words context.threads=2 train.batch_size=4 train.seq_len=1024 --steps 1 --no-peak --json
    planned=$(number planned_bytes)
    beside=$(($(number peak_rss_bytes) - $(number base_rss_bytes) - planned))
    [ "${beside#-}" -le $((planned / 50)) ] || die "$said: $beside bytes resident beyond the $planned planned"
done
echo "$checks command lines"
