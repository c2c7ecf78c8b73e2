#!/bin/sh
# Checks of the sources that need no build: formatting, house rules, cppcheck. With --format it formats the C
# files in place and checks nothing.
set -eu
cd "$(dirname "$0")/.."

c_files() {
    for folder in src include tests examples bench; do
        [ ! -d $folder ] || find $folder -name '*.[ch]' -print
    done
}

if [ "${1:-}" = --format ]; then
    c_files | xargs clang-format -i
    exit 0
fi

echo "lint: formatting"
c_files | xargs clang-format --dry-run --Werror || {
    echo "lint: run \`make format\`" >&2
    exit 1
}
echo "lint: house rules"
sh scripts/check_rooms.sh
echo "lint: cppcheck"
# Its own parse errors (compound literals with casts) and its guesses about uninitialised arrays, which both compilers
# and the sanitizers judge better, are left out.
cppcheck --quiet --std=c11 --language=c --enable=warning,portability --inline-suppr --error-exitcode=1 -j 2 \
    -I include -I src -D_GNU_SOURCE --suppress=missingIncludeSystem --suppress=unknownMacro \
    --suppress=internalAstError --suppress=uninitvar src
echo "lint: clean"
