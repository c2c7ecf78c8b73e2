#!/bin/sh
# Does scripts/check_rooms.sh find what it promises to find, and leave good code alone? Each case builds a small
# tree, adds one bad file and expects one finding of one rule. Usage: house_selftest.sh PATH_OF_check_rooms.sh
set -eu
checker=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# Lines "n" times; for bodies and files of a chosen length.
repeat() {
    awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) print text }'
}

# A tree that has no fault, with what a careless checker would stumble over.
fresh() {
    rm -rf "$tree"/*
    mkdir -p "$tree"/src/base "$tree"/src/graph "$tree"/src/data "$tree"/src/train "$tree"/src/op/add "$tree"/tests \
        "$tree"/scripts "$tree"/include/teng "$tree"/examples
    {
        echo '/* A comment that does not end { here, and the kernel'"'"'s "quote: if while for && || ?'
        echo '   #include "train/none.h" */'
        echo '#include "base/good.h"'
        echo 'static const char *const words[] = {'
        echo '    "if (a && b || c ? d : e) { /* no comment", "\"&&", '"'\"', '?', '{'"','
        echo '};'
        echo 'int good(int a) // if && || ?'
        echo '{'
        repeat 23 '    if (a) a--; /* && */ // ||'
        repeat 71 '    a += words[0][0];'
        echo '    return a;'
        echo '}'
        echo 'int declared(int if_not, int for_all);'
    } >"$tree"/src/base/good.c
    echo '/* Public or lower includes only. */' | tee "$tree"/src/base/good.h >"$tree"/include/teng/nn.h
    {
        echo '/* May see lower rooms, its own folder, side rooms and public headers. */'
        printf '#include "%s"\n' base/good.h graph/g.h data/d.h train/self.h teng/nn.h local.h
    } >"$tree"/src/train/t.c
    printf '/* An example. */\n#include "teng/nn.h"\n' >"$tree"/examples/ex.c
    printf '#!/bin/sh\n# A script.\ndir=$(mktemp -d /tmp/x.XXXXXX)\n' >"$tree"/scripts/s.sh
    : >"$tree"/scripts/check_exceptions.txt
}

verdict() {
    output=$(sh "$checker" "$tree" 2>&1) && status=0 || status=$?
}

bad() {
    echo "house_selftest: $1" >&2
    printf '%s\n' "$output" | sed 's/^/    /' >&2
    failures=$((failures + 1))
}

# expect WHAT RULE PLACE: exactly one finding, of this rule, at this place.
expect() {
    verdict
    if [ "$status" != 1 ] || [ "$(printf '%s\n' "$output" | grep -c '\[')" != 1 ] ||
        ! printf '%s\n' "$output" | grep -qF "$3: [$2] "; then
        bad "$1: expected one finding \"$3: [$2]\", got status $status and"
    fi
    fresh
}

expect_clean() {
    verdict
    [ "$status" = 0 ] && [ -z "$output" ] || bad "$1: expected no finding, got status $status and"
    fresh
}

# include_from FILE HEADER
include_from() {
    mkdir -p "$tree/$(dirname "$1")"
    printf '/* Head. */\n#include "%s"\n' "$2" >"$tree/$1"
}

fresh
expect_clean "the good tree"

include_from src/base/up.c graph/g.h
expect "a lower room includes a higher one" level src/base/up.c:2
include_from src/nn/x.c autograd/a.h
expect "rooms of one level include each other" level src/nn/x.c:2
include_from src/graph/x.c data/d.h
expect "the compute rooms do not see side rooms" level src/graph/x.c:2
include_from src/data/x.c ckpt/c.h
expect "side rooms do not see each other" level src/data/x.c:2
include_from src/op/add/x.c plan/p.h
expect "folders inside a room have its level" level src/op/add/x.c:2
include_from src/base/x.c teng/nn.h
expect "public headers have levels too" level src/base/x.c:2
include_from src/train/x.c attic/a.h
expect "an unknown room in an include" level src/train/x.c:2
include_from src/train/x.c ../base/good.h
expect "a path that goes up" level src/train/x.c:2
include_from src/attic/x.c base/good.h
expect "an unknown room in src" level src/attic/x.c:1
include_from examples/x.c graph/g.h
expect "users include public headers only" level examples/x.c:2
include_from include/teng/x.h base/good.h
expect "public headers include public headers only" level include/teng/x.h:2

{ echo '/* Head. */'; repeat 798 'int x;'; } >"$tree"/src/base/x.c
expect_clean "a file of 799 lines"
{ echo '/* Head. */'; repeat 799 'int x;'; } >"$tree"/src/base/x.c
expect "a file of 800 lines" file-lines src/base/x.c:800
{ echo '/* Head. */'; repeat 299 'int x;'; } >"$tree"/src/base/x.h
expect "a header of 300 lines" file-lines src/base/x.h:300

{ echo '/* Head. */'; echo 'int f(int a)'; echo '{'; repeat 97 '    a++;'; echo '}'; } >"$tree"/src/base/x.c
expect "a function of 100 lines" function-lines src/base/x.c:2
{
    printf '/* Head. */\nstatic int f(int a,\n             int b)\n{\n'
    repeat 6 '    while (a && b || a) b = b ? a : b;'
    echo '}'
} >"$tree"/src/base/x.c
expect "a function of complexity 25" mccabe src/base/x.c:2
{ printf '/* Head. */\nint f(int a)\n{\n    switch (a) {\n'; repeat 24 '    case 1:'; printf '    }\n}\n'; } >"$tree"/tests/x.c
expect "cases count, in tests too" mccabe tests/x.c:2

echo '/* Head. */' >"$tree"/tests/good.c
expect "two files of one name" unique tests/good.c:1
echo 'int x;' >"$tree"/src/base/x.c
expect "a source without a head" head src/base/x.c:1
printf '#!/bin/sh\ntrue\n' >"$tree"/scripts/x.sh
expect "a script without a head" head scripts/x.sh:2
printf '/* Head. */\n/* TO%s: later */\n' DO >"$tree"/src/base/x.c
expect "unfinished work" todo src/base/x.c:2
printf '# Reads /ho%s/me/data.\n' me >"$tree"/scripts/x.sh
expect "a path of one machine" path scripts/x.sh:1

echo 'int x;' >"$tree"/src/base/x.c
echo 'head src/base/x.c it is a table that a program writes' >"$tree"/scripts/check_exceptions.txt
expect_clean "an excused finding"
echo 'head src/base/x.c it is gone' >"$tree"/scripts/check_exceptions.txt
expect "an exception that excuses nothing" exceptions scripts/check_exceptions.txt:1
echo 'head src/base/x.c' >"$tree"/scripts/check_exceptions.txt
expect "an exception without a reason" exceptions scripts/check_exceptions.txt:1

[ $failures = 0 ] || {
    echo "house_selftest: $failures cases failed" >&2
    exit 1
}
echo "house_selftest: all cases passed"
