# Every strategy, and combinations of them, against one rank: losses, gradient norms and evaluations of 20 steps; one step
# from equal state; going on from a checkpoint on the same layout, to the bit. With "all" also: the same run twice, to
# the bit; its checkpoint on one rank; the model folder that the layout makes of one rank's checkpoint.
# test_ranks.sh TENG SOURCE_DIR FAMILY some|all "KEY=VALUE … of all" "RANKS KEY=VALUE …" …
# shellcheck disable=SC2086 # words are meant
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
. "$(dirname "$0")/ranks_common.sh"
family=$3
depth=$4
all=$5
shift 5
config "$family"

one=
for case in "$@"; do
    set -- $case
    n=$1
    shift
    # What belongs to the past of a run is no layout: one rank has it too, and it stays when a run goes on.
    past= layout=
    for word in "$@"; do
        case $word in
        train.micro_batches=*) past=$word ;;
        *) layout="$layout $word" ;;
        esac
    done
    limit=1e-5
    sharp=1e-6
    case "$layout " in
    *' parallel.reduce_dtype=bf16 '*) limit=5e-2 sharp=1e-2 ;;
    esac
    [ "$one" = "one $past" ] || run 0 train "$family.yaml" run.dir=one run.overwrite=true checkpoint.every=10 $all $past
    one="one $past"
    ranks "$n" 0 train "$family.yaml" run.dir=many run.overwrite=true checkpoint.every=10 $all $past $layout
    same one many "$limit"
    # One step from equal parameters and moments: sums in another order are 2e-7 then, whatever 20 steps make of it.
    stopped one again
    ranks "$n" 0 resume again train.steps=11 $layout
    same one again "$sharp" 11
    stopped many again
    ranks "$n" 0 resume again
    same many again 0
    equal_bytes many/checkpoints/step-00000020 again/checkpoints/step-00000020 "$case: went on, other bytes"
    equal_bytes many/model again/model "$case: went on, another model"
    [ "$depth" = all ] || continue
    ranks "$n" 0 train "$family.yaml" run.dir=again run.overwrite=true checkpoint.every=10 $all $past $layout
    same many again 0
    equal_bytes many/checkpoints again/checkpoints "$case: twice, other bytes"
    stopped many again
    run 0 resume again $alone
    same many again "$limit"
    stopped one again
    run 0 resume again train.steps=10
    mv again/model whole
    stopped one again
    ranks "$n" 0 resume again train.steps=10 $layout
    equal_bytes whole again/model "$case: another model of the same checkpoint"
    rm -r whole
done
echo "$checks checks passed"
