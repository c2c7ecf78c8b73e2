# What ZeRO leaves on a rank, planned and measured: parameters, accumulated gradients and AdamW's two moments follow
# the formula of each level, and the resident memory of a real step follows the plan. test_ranks_memory.sh TENG SOURCE
set -eu
source=$2
. "$(dirname "$0")/cli_common.sh"
. "$(dirname "$0")/ranks_common.sh"

# 21 M parameters, 85 MB: large beside the program, its rings of shared memory and the activations.
cat >model.yaml <<END
model: {model_type: llama, vocab_size: 256, hidden_size: 512, intermediate_size: 1024, num_hidden_layers: 8, num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 64}
data: {files: [$source/docs/design.md]}
train: {batch_size: 8, seq_len: 16, micro_batches: 2}
END
# near WHAT VALUE WANT SHARE: within that share of WANT.
near() {
    awk -v x="$2" -v want="$3" -v share="$4" 'BEGIN { d = x - want; if (d < 0) d = -d; exit !(x != "" && d <= share * want) }' ||
        die "$said: $1 is $2, the formula says $3"
}
# shellcheck disable=SC2086 # words are meant
for words in '2 parallel.data=2' '4 parallel.data=4' '2 parallel.context=2' '4 parallel.data=2 parallel.context=2'; do
    n=${words%% *}
    layout=${words#* }
    for zero in 0 1 2 3; do
        run 0 plan model.yaml $layout parallel.zero=$zero --json
        all=$(($(sed -n 's/^  "parameters": \([0-9]*\),*$/\1/p' "$scratch/out") * 4))
        split() { [ "$zero" -ge "$1" ] && echo $((all / n)) || echo "$all"; }
        # Every tensor divides by 4 here; one that does not has a row more on some ranks (test_par_bytes).
        near parameters "$(number params_bytes)" "$(split 3)" 0
        near 'gradients and moments' "$(number states_bytes)" $(($(split 2) + 2 * $(split 1))) 0
    done
    [ "$layout" != parallel.data=2 ] || continue # measured on context ranks
    for zero in 0 3; do
        ranks $n 0 bench step model.yaml $layout parallel.zero=$zero --steps 1 --no-peak --json
        planned=$(number planned_bytes)
        resident=$(($(number peak_rss_bytes) - $(number base_rss_bytes)))
        # Beside the plan: small objects, and for n ranks up to 48 MiB of rings.
        [ "$resident" -ge $((planned * 98 / 100)) ] || die "$said: $resident bytes resident, $planned planned"
        [ "$resident" -le $((planned + (64 << 20))) ] || die "$said: $resident bytes resident, $planned planned"
        [ $zero = 0 ] && before="$planned $resident"
    done
    set -- $before
    [ "$(($1 - planned))" -gt $((all / 2)) ] || die "$words: ZeRO 3 saves $(($1 - planned)) of $1 bytes by plan"
    said=$words
    near 'what ZeRO 3 saves of the resident memory' $(($2 - resident)) $(($1 - planned)) 0.15
done
echo "$checks command lines"
