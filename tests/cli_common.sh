# Read (".") by the shell tests of the program: run a command line, then look at its status and what it said.
teng=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
checks=0

die() {
    echo "$0: $*" >&2
    exit 1
}

# run STATUS WORDS…: runs teng; its output is in $scratch/out and err.
run() {
    want=$1
    shift
    said="teng $*"
    status=0
    "$teng" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
    [ "$status" = "$want" ] || die "$said: exit status $status, wanted $want; it said: $(cat "$scratch/out" "$scratch/err")"
    checks=$((checks + 1))
}

# out TEXT, err TEXT: the last run printed it there.
out() {
    grep -qF -e "$1" "$scratch/out" || die "$said: standard output lacks \"$1\": $(cat "$scratch/out")"
}
err() {
    grep -qF -e "$1" "$scratch/err" || die "$said: standard error lacks \"$1\": $(cat "$scratch/err")"
}

# usage ERROR WORDS…: wrong usage: status 2, nothing on standard output, the error, and how to get help.
usage() {
    message=$1
    shift
    run 2 "$@"
    err "$message"
    err 'shows more.'
    [ ! -s "$scratch/out" ] || die "$said: wrong usage printed on standard output: $(cat "$scratch/out")"
}

# number KEY: the first whole number of that key in the JSON that the last run printed.
number() {
    sed -n 's/^ *"'"$1"'": \([0-9]*\),*$/\1/p' "$scratch/out" | head -n 1
}
