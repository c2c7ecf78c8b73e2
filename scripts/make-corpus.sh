#!/usr/bin/env bash
# Plain text for `./run`, out of a distribution package: one document a file.
#
#   scripts/make-corpus.sh NAME FOLDER     NAME: bible | anarchism
#
# bible: the King James text by the package's own program, a chapter a document. anarchism: "An Anarchist FAQ", a page a
# document, tags removed. docs/corpus.md says why bible is the default.
set -euo pipefail

name=${1:?name of the corpus: bible or anarchism}
out=${2:?folder to write}

fail() {
    printf 'make-corpus: %s\n' "$1" >&2
    exit 1
}

make_bible() {
    command -v bible >/dev/null || fail "the program bible is missing: install the packages bible-kjv and bible-kjv-text"
    # Every verse on a line of its own: "Ge1:1 text". A chapter begins where the reference before ':' changes.
    bible -f gen1:1-rev22:21 | awk -v out="$1" '
        {
            i = index($0, " "); ref = substr($0, 1, i - 1); text = substr($0, i + 1)
            split(ref, part, ":")
            if (part[1] != chapter) { if (file) close(file); chapter = part[1]; n++; file = sprintf("%s/chapter-%04d.txt", out, n) }
            gsub(/[][]/, "", text)
            print text > file
        }'
}

make_anarchism() {
    local pages=/usr/share/doc/anarchism/html page
    [ -d "$pages" ] || fail "the folder $pages is missing: install the package anarchism"
    for page in "$pages"/*.html; do
        sed -e '/<head>/,/<\/head>/d' -e 's/<\/p>/\n/g; s/<br[^>]*>/\n/g; s/<\/h[1-6]>/\n/g; s/<[^>]*>//g' \
            -e 's/&quot;/"/g; s/&lt;/</g; s/&gt;/>/g; s/&nbsp;/ /g; s/&#39;/'"'"'/g; s/&amp;/\&/g' "$page" |
            tr -s ' \t' ' ' | sed -e 's/^ *//; s/ *$//' | cat -s >"$1/$(basename "$page" .html).txt"
    done
}

mkdir -p "$out.tmp"
case $name in
bible) make_bible "$out.tmp" ;;
anarchism) make_anarchism "$out.tmp" ;;
*) fail "unknown corpus \"$name\": bible or anarchism" ;;
esac
[ -n "$(ls -A "$out.tmp")" ] || fail "no text came out of the package for \"$name\""
rm -rf "$out"
mv "$out.tmp" "$out"
