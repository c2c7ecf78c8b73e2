# Every kind of wrong usage: exit status 2, a message that helps. And the help, which is never wrong.
# test_cli_usage.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2

usage 'teng: a command is missing'
usage 'teng: unknown command "trian"; did you mean "train"?' trian
usage 'teng: unknown command "encode"; did you mean "tokenizer encode"?' encode
usage 'teng: unknown command "qqqq"' qqqq
usage 'teng: unknown option --json; a command comes first' --json
usage 'teng tokenizer: unknown command "tokenizer trian"; did you mean "tokenizer train"?' tokenizer trian
usage 'teng tokenizer: tokenizer what?' tokenizer
usage 'teng data: data what?' data

usage 'teng train: CONFIG.yaml is missing' train
usage 'usage: teng train CONFIG.yaml [key=value ...]' train
usage 'teng train: unexpected argument "b.yaml"' train a.yaml b.yaml
usage 'unexpected argument "train.steps"; did you mean train.steps=VALUE?' train a.yaml train.steps
usage 'unknown option --train.steps; keys are set without the dashes: train.steps=VALUE' train a.yaml --train.steps=3
usage 'teng train: unknown option -q; options begin with two dashes' train a.yaml -q
usage 'teng resume: RUN_DIR is missing' resume train.steps=4
usage 'teng eval: FILE... is missing' eval model
usage 'teng generate: unknown option --temprature; did you mean --temperature?' generate m --temprature 1
usage '--temperature: "hot" is no number' generate m --temperature hot
usage '--temperature: -1 is out of range; it must be at least 0' generate m --temperature=-1
usage '--max-tokens: "1.5" is no whole number' generate m --max-tokens 1.5
usage '--top-p: 1.5 is out of range; it must be above 0, at most 1' generate m --top-p 1.5
usage '--seed is given twice' generate m --seed 1 --seed 2
usage '--seed needs a value: --seed N' generate m --seed
usage '--prompt needs a value: --prompt TEXT (to take that word: --prompt=--json)' generate m --prompt --json
usage '--json takes no value' generate m --json=yes
usage '--prompt and --prompt-file exclude each other' generate m --prompt a --prompt-file b
usage '--out is missing: --out FILE.svg' plot run
usage '--x: unknown word "hour"; did you mean "hours"? known: steps, tokens, hours' plot run --out a.svg --x hour
usage '--tokenizer is missing: --tokenizer FILE' tokenizer info
usage 'unexpected argument "x"' tokenizer info x --tokenizer bytes
usage '--vocab-size: 256 is out of range' tokenizer train --vocab-size 256 --out "$scratch/t.json" x
usage '--format: unknown word "tengs"; did you mean "teng"?' data prepare x --tokenizer bytes --out d --format tengs
usage '--json stands alone' plan x.yaml --json --graph
usage 'did you mean "train.steps"?' config train.step
usage '"train.steps=3" sets a key, which goes with --check FILE; `teng config train.steps` explains it' config train.steps=3
usage 'teng completion: no completion for "fish"; known: bash' completion fish
usage 'unknown command "trian"; did you mean "train"?' help trian
usage '--out DIR goes with --man alone' help train --man --out "$scratch/m"
usage 'teng devices: unexpected argument "x"' devices x

# A wrong key on the command line is wrong usage; a wrong file is a failure.
printf 'model:\n  model_type: llama\n  hidden_size: 32\n  num_hidden_layers: 1\n  num_attention_heads: 2\ntrain:\n  steps: 5\n' >"$scratch/c.yaml"
printf 'data.files: [c.yaml]\n' >>"$scratch/c.yaml"
run 0 config --check "$scratch/c.yaml"
out "$scratch/c.yaml: good; 6 keys given"
run 0 config --check "$scratch/c.yaml" train.steps=7 --json
out '"source": "command line"'
usage 'unknown key "train.step"; did you mean "train.steps"?' config --check "$scratch/c.yaml" train.step=3
usage 'command line: train.steps' config --check "$scratch/c.yaml" train.steps=-3
run 1 config --check "$scratch/c.yaml" 'data.files=[none.txt]'
err 'none.txt'
printf 'train:\n  step: 5\n' >"$scratch/wrong.yaml"
run 1 config --check "$scratch/wrong.yaml"
err 'wrong.yaml:2:3: unknown key "train.step"; did you mean "train.steps"?'
run 1 train "$scratch/none.yaml"
err 'teng train: '
err 'none.yaml'
run 1 resume "$scratch/none"
err 'teng resume: '
err "$scratch/none"

# Both spellings of a value, options before and behind, "--".
run 0 config --json train.steps
run 0 config train.steps --json
run 1 plot --out "$scratch/a.svg" -- --none
err '--none'
run 1 plot --out="$scratch/a.svg" "$scratch/none"
err "$scratch/none"

# Help of everything.
for words in '' train resume eval generate tokenizer 'tokenizer train' 'tokenizer encode' 'tokenizer decode' \
    'tokenizer info' data 'data prepare' verify plan plot devices config completion help version; do
    run 0 help $words
    cp "$scratch/out" "$scratch/help"
    out usage:
    [ ! -s "$scratch/err" ] || die "$said wrote to standard error"
    run 0 $words --help
    cmp -s "$scratch/help" "$scratch/out" || die "$said differs from teng help $words"
    run 0 $words -h
done
run 0 train --help --nonsense
run 0 --version
out 'teng '
run 0 version
out oneDNN

# The keys as a page are the page in docs/.
run 0 config --markdown
cmp -s "$scratch/out" "$source/docs/configuration.md" || die 'teng config --markdown is not docs/configuration.md'

# A full disk behind standard output is a failure.
if [ -w /dev/full ]; then
    status=0
    "$teng" help >/dev/full 2>"$scratch/err" || status=$?
    [ $status = 1 ] || die "output to a full disk: exit status $status"
    err 'cannot write to standard output'
fi
echo "$checks command lines"
