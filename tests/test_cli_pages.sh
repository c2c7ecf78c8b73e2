# The manual pages: one for every command, with its options, and clean roff where groff is there to say so.
# test_cli_pages.sh TENG
set -eu
. "$(dirname "$0")/cli_common.sh"

run 0 help --man --out "$scratch/man"
run 0 help
commands=$(sed -n 's/^  \([a-z][a-z ]*[a-z]\)  .*/\1/p' "$scratch/out" | tr ' ' '-')
[ "$(echo "$commands" | wc -l)" -ge 15 ] || die "few commands in the help: $commands"
[ "$(ls "$scratch/man" | wc -l)" = $(($(echo "$commands" | wc -l) + 1)) ] || die "pages: $(ls "$scratch/man")"
for command in '' $commands; do
    page=$scratch/man/teng${command:+-$command}.1
    [ -s "$page" ] || die "$page is missing"
    grep -q '^\.SH SYNOPSIS' "$page" || die "$page has no synopsis"
    if command -v groff >/dev/null; then
        groff -man -Tutf8 -ww "$page" >"$scratch/text" 2>"$scratch/err" || die "groff refuses $page"
        [ ! -s "$scratch/err" ] || die "$page: $(cat "$scratch/err")"
        tr -d '\b' <"$scratch/text" | grep -q 'NAME\|NNAAMMEE' || die "$page renders to: $(cat "$scratch/text")"
    fi
done
grep -qF '\-\-top\-k' "$scratch/man/teng-generate.1" || die 'teng-generate(1) lacks --top-k'
run 0 help generate --man
cmp -s "$scratch/out" "$scratch/man/teng-generate.1" || die 'help generate --man differs from the page written'
run 0 help tokenizer encode --man
out 'TENG\-TOKENIZER\-ENCODE'
