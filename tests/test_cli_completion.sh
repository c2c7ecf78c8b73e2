# The completion script in a real bash: what is offered for a half-typed line.
# test_cli_completion.sh TENG
set -eu
command -v bash >/dev/null || exit 77
. "$(dirname "$0")/cli_common.sh"

run 0 completion bash
bash -n "$scratch/out" || die 'the script is no bash'
cp "$scratch/out" "$scratch/teng.bash"
bash -c ". '$scratch/teng.bash'; complete -p teng" | grep -q -- '-F _teng teng' || die 'teng has no completion'

cat >"$scratch/offer.bash" <<'END'
# offer.bash SCRIPT WORDBREAKS LINE: the offers for LINE, sorted, on one line
. "$1"
COMP_WORDBREAKS=$2 COMP_LINE=$3 COMP_POINT=${#3}
_teng
printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ' | sed 's/ $//'
END
# offers LINE WANTED [WORDBREAKS]
offers() {
    got=$(cd "$scratch" && bash "$scratch/offer.bash" "$scratch/teng.bash" "${3-=}" "$1")
    [ "$got" = "$2" ] || die "\"$1\" offers \"$got\", wanted \"$2\""
    checks=$((checks + 1))
}
mkdir "$scratch/folder"
: >"$scratch/folder/a.yaml"
offers 'teng tr' 'train'
offers 'teng to' 'tokenizer'
offers 'teng tokenizer ' 'decode encode info train'
offers 'teng tokenizer tr' 'train'
offers 'teng help pl' 'plan plot'
offers 'teng completion ' 'bash'
offers 'teng generate m --te' '--temperature'
offers 'teng generate m --prompt x --top' '--top-k --top-p'
offers 'teng tokenizer encode --pa' '--parse-special'
offers 'teng plot r --x ' 'hours steps tokens'
offers 'teng plot r --x=h' 'hours'
offers 'teng data prepare --format m' 'megatron'
offers 'teng data prepare --seed ' ''
offers 'teng data prepare folder/a' 'folder/a.yaml'
offers 'teng tokenizer info --tokenizer folder/a' 'folder/a.yaml'
offers 'teng train folder/a' 'folder/a.yaml'
offers 'teng train a.yaml train.st' 'train.steps='
offers 'teng train a.yaml context.mode=' 'graph pynative'
offers 'teng train a.yaml context.mode=p' 'pynative'
offers 'teng train a.yaml context.mode=p' 'context.mode=pynative' ' '
offers 'teng config schedule.w' 'schedule.warmup_fraction= schedule.warmup_steps='
offers 'teng devices --' '--help --json --measure --threads'
offers 'teng nothing ' ''
echo "$checks lines"
