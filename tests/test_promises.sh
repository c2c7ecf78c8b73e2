# Every test that docs/exactness.md names is a test of this build. test_promises.sh SOURCE_DIR BUILD_DIR CTEST
set -eu
"$3" --test-dir "$2" -N | sed -n 's/.*Test *#[0-9]*: //p' >"${TMPDIR:-/tmp}/tests.$$"
trap 'rm -f "${TMPDIR:-/tmp}/tests.$$"' EXIT
n=0
for name in $(grep -o '`test_[a-z_]*`' "$1/docs/exactness.md" | tr -d '`' | sort -u); do
    grep -qx "$name" "${TMPDIR:-/tmp}/tests.$$" || {
        echo "docs/exactness.md names $name, which is no test" >&2
        exit 1
    }
    n=$((n + 1))
done
[ $n -gt 10 ]
echo "$n tests"
