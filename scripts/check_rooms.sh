#!/bin/sh
# The house rules of docs/design.md, checked: which room may include which, sizes, unique names, heads of files, no
# leftovers. Plain sh and awk, so that it runs wherever the build runs. Not a formatter and not a compiler: it
# relies on the layout that clang-format gives (a function's braces stand alone in column 0).
#
#   scripts/check_rooms.sh [ROOT]
#
# Each finding is one line "path:line: [rule] message". scripts/check_exceptions.txt may list "rule subject reason",
# subject being the path or path:function; an exception that excuses nothing is a finding too.
set -eu
cd "${1:-"$(dirname "$0")/.."}"

# Room, its level, the lowest level that may include it (one above its own, except for the side rooms, which only
# the trainer and what stands above it may see).
rooms='
base      0  0
config    1  2
tensor    1  2
mesh      1  2
device    2  3
comm      2  3
graph     3  4
op        4  5
nn        5  6
autograd  5  6
parallel  5  6
optim     5  6
pass      5  6
plan      6  7
exec      7  8
eager     7  8
search    7  8
data      3  8
ckpt      3  8
monitor   3  8
train     8  9
bench     9 10
cli      10 11
main     11 12
'

# Files of some kinds below some folders, without build results and test data.
files() {
    pattern=$1
    shift
    for folder in "$@"; do
        [ ! -e "$folder" ] || find "$folder" -name build -prune -o -path tests/data -prune -o -type f -print
    done | grep -E "$pattern" || true
}

# xargs without its quoting rules; no arguments, no call.
each() {
    tr '\n' '\0' | xargs -0 -r "$@"
}

findings=$(mktemp)
trap 'rm -f "$findings"' EXIT

# --- C files: levels, sizes, complexity -------------------------------------------------------------------
files '\.(c|h|def)$' src include tests examples bench | each awk -v rooms="$rooms" '
function find_fault(rule, subject, line, text) {
    printf "%s|%s|%s:%d|%s\n", rule, subject, file, line, text
}
function setup(    n, i, part, field) {
    n = split(rooms, part, "\n")
    for (i = 1; i <= n; i++)
        if (split(part[i], field, " ") == 3) {
            level[field[1]] = field[2]
            seen_from[field[1]] = field[3]
        }
    ready = 1
}
# The line without comments, and with empty strings; in_comment goes on from line to line.
function strip(s,    out, c, at) {
    out = ""
    while (s != "") {
        if (in_comment) {
            at = index(s, "*/")
            if (!at) return out
            s = substr(s, at + 2)
            in_comment = 0
            continue
        }
        if (!match(s, /["\047]|\/\*|\/\//)) return out s
        out = out substr(s, 1, RSTART - 1)
        c = substr(s, RSTART, RLENGTH)
        s = substr(s, RSTART + RLENGTH)
        if (c == "//") return out
        if (c == "/*") {
            in_comment = 1
            continue
        }
        out = out "0"
        while (s != "" && substr(s, 1, 1) != c)
            s = substr(s, substr(s, 1, 1) == "\\" ? 3 : 2)
        s = substr(s, 2)
    }
    return out
}
function decisions(s,    n) {
    n = gsub(/&&|\|\||\?/, " ", s)
    gsub(/[^A-Za-z0-9_]+/, "  ", s)
    s = " " s " "
    return n + gsub(/ (if|for|while|case) /, " ", s)
}
function check_include(path,    first, header, from) {
    if (path ~ /\.\./) {
        find_fault("level", file, FNR, "#include \"" path "\": name the file from its room, without ..")
        return
    }
    first = path
    if (!sub(/\/.*/, "", first)) return
    if (first == "teng") {
        header = substr(path, 6)
        if (room != "" && header != "status.h" && (room == "base" || (level[room] < 3 && header != "tensor.h")))
            find_fault("level", file, FNR, "room " room " (level " level[room] ") includes the public " path)
        return
    }
    if (file ~ /^(include|examples)\//) {
        find_fault("level", file, FNR, "#include \"" path "\": only public headers (teng/...) are for users")
        return
    }
    if (!(first in level)) {
        if (room != "") find_fault("level", file, FNR, "#include \"" path "\": there is no room " first)
        return
    }
    if (room == "" || first == room) return
    if (level[room] < seen_from[first])
        find_fault("level", file, FNR, "room " room " (level " level[room] ") includes " path \
                   ", which only levels from " seen_from[first] " may")
}
function end_of_file(    limit) {
    if (file == "") return
    limit = file ~ /\.c$/ ? 800 : file ~ /\.h$/ ? 300 : 0
    if (limit && last_line >= limit)
        find_fault("file-lines", file, last_line, last_line " lines, " limit - 1 " are allowed: split it by topic")
}
FNR == 1 {
    if (!ready) setup()
    end_of_file()
    file = FILENAME
    in_comment = in_function = 0
    signature = ""
    room = ""
    if (file ~ /^src\//) {
        room = file
        sub(/^src\//, "", room)
        if (!sub(/\/.*/, "", room) || !(room in level)) {
            find_fault("level", file, 1, "stands in no room of docs/design.md, section 3")
            room = ""
        }
    }
    if ($0 !~ /^\/[*\/]/) find_fault("head", file, 1, "opens with no comment: what it is, why so, what it is not")
}
{
    last_line = FNR
    if (!in_comment && $0 ~ /^[ \t]*#[ \t]*include[ \t]*"/) {
        split($0, quoted, "\"")
        check_include(quoted[2])
    }
    code = strip($0)
}
!in_function && code ~ /^[A-Za-z_].*\(/ && code !~ /;[ \t]*$/ {
    signature = code
    start = FNR
}
!in_function && code ~ /^{[ \t]*$/ && signature != "" {
    in_function = 1
    name = signature
    sub(/\(.*/, "", name)
    sub(/.*[^A-Za-z0-9_]/, "", name)
    complexity = 1
}
in_function && code !~ /^[ \t]*#/ {
    complexity += decisions(code)
}
in_function && code ~ /^}/ {
    in_function = 0
    if (FNR - start + 1 >= 100)
        find_fault("function-lines", file ":" name, start, name " has " FNR - start + 1 " lines, 99 are allowed")
    if (complexity >= 25)
        find_fault("mccabe", file ":" name, start, name " has a McCabe complexity of " complexity ", 24 is allowed")
    signature = ""
}
END { end_of_file() }
' >>"$findings"

# --- Other files open with a comment too --------------------------------------------------------------------
files '(\.sh|\.py|\.cmake|CMakeLists\.txt|/run)$|^(Makefile|run)$' CMakeLists.txt Makefile run .ci cmake scripts src \
    tests examples bench | each awk '
FNR == 1 { open = 1 }
FNR == 1 && /^#!/ { next }
open {
    open = 0
    if ($0 !~ /^(#|""")/) printf "head|%s|%s:%d|opens with no comment: what it is, why so, what it is not\n", FILENAME,
        FILENAME, FNR
}' >>"$findings"

# --- Unique file names --------------------------------------------------------------------------------------
files '\.(c|h|def|sh|py)$' src include tests examples bench scripts | awk -F/ '
$NF in first { printf "unique|%s|%s:1|the name is taken by %s\n", $0, $0, first[$NF] }
!($NF in first) { first[$NF] = $0 }' >>"$findings"

# --- Leftovers: paths of one machine, marks of unfinished work --------------------------------------------------
# (The patterns are written so that this file does not match itself.)
files '\.(c|h|def|sh|py|cmake|txt|md|ya?ml|json)$|/run$|^(Makefile|run)$' CMakeLists.txt CMakePresets.json Makefile \
    README.md run .ci cmake configs docs scripts src include tests examples bench | each awk '
/(^|[^A-Za-z0-9_.~])\/(work|home|root|Users)[\/]/ {
    printf "path|%s|%s:%d|a path of one machine: %s\n", FILENAME, FILENAME, FNR, substr($0, 1, 80)
}
/(^|[^A-Za-z])(TO[D]O|FIX[M]E|X[X]X)([^A-Za-z]|$)/ {
    printf "todo|%s|%s:%d|unfinished: do it, or file it as an issue: %s\n", FILENAME, FILENAME, FNR, substr($0, 1, 80)
}' >>"$findings"

# --- Exceptions, and the verdict -----------------------------------------------------------------------------
exceptions=scripts/check_exceptions.txt
[ -e $exceptions ] || exceptions=/dev/null
sort "$findings" | awk -F'|' -v list="$exceptions" '
BEGIN {
    while ((getline line < list) > 0) {
        at++
        if (line ~ /^[ \t]*(#|$)/) continue
        n = split(line, field, /[ \t]+/)
        if (n < 3) {
            printf "%s:%d: [exceptions] a line is \"rule subject reason\"\n", list, at
            bad++
        } else
            excused[field[1] " " field[2]] = at
    }
}
($1 " " $2) in excused { used[$1 " " $2] = 1; next }
{
    text = $4
    for (i = 5; i <= NF; i++) text = text "|" $i
    printf "%s: [%s] %s\n", $3, $1, text
    bad++
}
END {
    for (e in excused)
        if (!(e in used)) {
            printf "%s:%d: [exceptions] \"%s\" excuses nothing any more: remove the line\n", list, excused[e], e
            bad++
        }
    if (bad) {
        printf "%d finding%s; the rules are in docs/design.md, sections 3 and 9\n", bad, bad == 1 ? "" : "s"
        exit 1
    }
}'
