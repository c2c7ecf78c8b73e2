# Every strategy, and combinations of them, against one rank: losses, gradient norms and evaluations of 20 steps.
# test_ranks.sh TENG SOURCE_DIR FAMILY "KEY=VALUE … of all" "RANKS KEY=VALUE …" …
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
. "$(dirname "$0")/ranks_common.sh"
family=$3
all=$4
shift 4
config "$family"
# shellcheck disable=SC2086 # words are meant, here and below
run 0 train "$family.yaml" run.dir=one $all
for case in "$@"; do
    # shellcheck disable=SC2086
    set -- $case
    n=$1
    shift
    # shellcheck disable=SC2086
    ranks "$n" 0 train "$family.yaml" run.dir=many run.overwrite=true $all "$@"
    case " $* " in
    *' parallel.reduce_dtype=bf16 '*) same one many 5e-2 ;;
    *) same one many 1e-5 ;;
    esac
done
echo "$checks checks passed"
