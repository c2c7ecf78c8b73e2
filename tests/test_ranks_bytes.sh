# What a rank has sent in real steps, as the collectives counted it (bench step), is what `teng plan` says, axis by
# axis. test_ranks_bytes.sh TENG SOURCE
set -eu
source=$2
. "$(dirname "$0")/cli_common.sh"
. "$(dirname "$0")/ranks_common.sh"

# Lines "axes bytes" of an answer's sent_bytes.
sent() {
    sed -n '/"sent_bytes": {/,/}/s/^ *"\([a-z+]*\)": \([0-9.e+]*\),*$/\1 \2/p' "$1"
}

# case RANKS MODEL WORDS…: rank 0's bytes. Beside the graph the ranks agree on labels and losses, which is a few
# bytes, and where a dimension does not divide a piece has a row more or less than the mean.
case_of() {
    n=$1
    file=$2
    shift 2
    run 0 plan "$file" "$@" --json
    sent "$scratch/out" >planned
    ranks "$n" 0 bench step "$file" "$@" --steps 2 --no-peak --json
    sent "$scratch/out" >counted
    [ -s planned ] || die "$said: nothing planned"
    awk 'NR == FNR { plan[$1] = $2; next } { got[$1] = $2 }
         END { for (a in plan) axes[a]; for (a in got) axes[a]
               for (a in axes) { d = got[a] - plan[a]; if (d < 0) d = -d
                                 if (d > 100) { print a ": planned " plan[a] + 0 ", sent " got[a] + 0; exit 1 } } }' planned counted >why ||
        die "$said: $(cat why)"
}
config llama
config gpt2
config mixtral
# Every token goes to every expert: no rank gets more than another.
sed 's/num_experts_per_tok: 2/num_experts_per_tok: 4/' mixtral.yaml >even.yaml
v=model.vocab_size=256
case_of 2 llama.yaml $v parallel.data=2
case_of 2 llama.yaml $v parallel.data=2 parallel.zero=2 train.micro_batches=2
case_of 2 llama.yaml $v parallel.data=2 parallel.zero=3
case_of 2 llama.yaml $v parallel.tensor=2 parallel.sequence=true
case_of 2 gpt2.yaml $v parallel.context=2 parallel.zero=3
case_of 2 even.yaml $v parallel.expert=2 parallel.zero=2
case_of 2 llama.yaml $v parallel.pipeline=2 train.micro_batches=4
case_of 4 gpt2.yaml $v parallel.pipeline=2 parallel.data=2 parallel.zero=1 train.micro_batches=2 parallel.schedule=zero_bubble
case_of 4 even.yaml $v parallel.expert=2 parallel.tensor=2
case_of 4 even.yaml $v parallel.expert=2 parallel.context=2 parallel.zero=1
case_of 4 llama.yaml $v parallel.pipeline=2 parallel.context=2 parallel.schedule=interleaved parallel.chunks=2 train.micro_batches=2
echo "$checks runs"
