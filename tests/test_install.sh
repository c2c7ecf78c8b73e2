# Installs into a fresh prefix (and below DESTDIR), then builds a small program against it: with pkg-config, with the
# static library, as a CMake project. Every public function is exported by the library and by the program.
# test_install.sh TENG BUILD_DIR CC CMAKE
set -eu
. "$(dirname "$0")/cli_common.sh"
build=$2 cc=$3 cmake=$4 example=$(cd "$(dirname "$0")/../examples" && pwd)/custom_cell.c

DESTDIR=$scratch/stage "$cmake" --install "$build" --prefix /opt/teng >"$scratch/out" || die "$(cat "$scratch/out")"
[ -x "$scratch/stage/opt/teng/bin/teng" ] || die 'DESTDIR holds no opt/teng/bin/teng'
"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/out" || die "$(cat "$scratch/out")"
prefix=$scratch/moved # nothing installed may remember where it was put
mv "$scratch/first" "$prefix"

for file in bin/teng include/teng/status.h include/teng/nn.h share/man/man1/teng.1 share/man/man1/teng-train.1 \
    share/bash-completion/completions/teng; do
    [ -s "$prefix/$file" ] || die "$file was not installed"
done
"$prefix/bin/teng" version >"$scratch/out" || die 'the installed program does not run'
library=$(find "$prefix" -name libteng.so)
archive=$(find "$prefix" -name libteng.a)
[ -n "$library" ] && [ -n "$archive" ] || die "libteng.so or libteng.a was not installed"
libdir=$(dirname "$library")

# Public functions: the names in lines of the headers that begin with TENG_API.
sed -n 's/^TENG_API[^(]*[ *]\(teng_[a-z0-9_]*\)(.*/\1/p' "$prefix"/include/teng/*.h | sort -u >"$scratch/public"
[ "$(wc -l <"$scratch/public")" -gt 60 ] || die "few public functions: $(wc -l <"$scratch/public")"
if command -v nm >/dev/null; then
    for binary in "$library" "$prefix/bin/teng"; do
        nm -D --defined-only "$binary" | sed -n 's/.* T \(teng_[a-z0-9_]*\)$/\1/p' | sort >"$scratch/exported"
        lost=$(comm -23 "$scratch/public" "$scratch/exported")
        [ -z "$lost" ] || die "$binary does not export: $lost"
    done
fi

mkdir "$scratch/user"
cd "$scratch/user"
cat >user.c <<'END'
#include <teng/nn.h>

#include <stdio.h>

int main(void)
{
    teng_cell *cell = teng_nn_linear(3, 5, true, 0.02);
    if (!cell) return 1;
    printf("%s %lld\n", teng_version(), (long long)teng_cell_numel(cell));
    teng_cell_destroy(&cell);
    return 0;
}
END
check() {
    said=$(LD_LIBRARY_PATH=${2-} "$1") || die "$1 fails: $said"
    case $said in
    *' 20') ;;
    *) die "$1 says: $said" ;;
    esac
}
if command -v pkg-config >/dev/null; then
    PKG_CONFIG_PATH=$libdir/pkgconfig
    export PKG_CONFIG_PATH
    "$cc" -std=c17 -Wall -Werror user.c $(pkg-config --cflags --libs teng) -o shared
    check ./shared "$libdir"
    "$cc" -std=c17 -Wall -Werror "$example" $(pkg-config --cflags --libs teng) -lm -o cell
    LD_LIBRARY_PATH=$libdir ./cell >said || die "the example of a custom cell fails: $(cat said)"
    grep -q 'equal in both modes' said || die "the example of a custom cell says: $(cat said)"
    "$cc" -std=c17 user.c $(pkg-config --cflags teng) -o static "$archive" \
        $(pkg-config --static --libs teng | sed 's/-lteng//')
    check ./static
fi
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(teng 0.1 REQUIRED)
add_executable(built user.c)
target_link_libraries(built PRIVATE teng::teng)
END
"$cmake" -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$scratch/out" 2>&1 ||
    die "the CMake project: $(cat "$scratch/out")"
"$cmake" --build build >"$scratch/out" 2>&1 || die "the CMake project: $(cat "$scratch/out")"
check build/built
