# Checkpoints of ranks: resume on the same layout to the bit, on any other within rounding, and what reads them.
# test_ranks_resume.sh TENG SOURCE_DIR
# shellcheck disable=SC2046,SC2086 # words are meant
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
. "$(dirname "$0")/ranks_common.sh"
for family in llama gpt2 mixtral; do config $family; done

# from NAME N FAMILY WORDS…: a run of 20 steps with a checkpoint after 10, and the model folder that one rank makes of that.
from() {
    name=$1
    n=$2
    family=$3
    shift 3
    ranks "$n" 0 train "$family.yaml" "run.dir=$name" checkpoint.every=10 "$@"
    stopped "$name" "$name.half"
    run 0 resume "$name.half" train.steps=10 $alone
}

# go_on NAME N WORDS…: the second half on another layout: its first step sharply, all within rounding, and the same bytes of
# the model folder of step 10. Without words on the same layout, to the bit.
go_on() {
    name=$1
    n=$2
    shift 2
    stopped "$name" again
    ranks "$n" 0 resume again "$@"
    if [ $# = 0 ]; then
        same "$name" again 0
        equal_bytes "$name/checkpoints/step-00000020" again/checkpoints/step-00000020 "$name: went on, other bytes"
        equal_bytes "$name/model" again/model "$name: went on, another model"
    else
        same "$name" again 1e-5
        same "$name" again 1e-6 11
    fi
    stopped "$name" again
    ranks "$n" 0 resume again train.steps=10 "$@"
    equal_bytes "$name.half/model" again/model "$said: another model of the same checkpoint"
}

# One rank's checkpoint, of the form it has always had, on several.
from one 1 llama parallel.data=1
[ -s one/checkpoints/step-00000020/model.safetensors ] || die 'a run of one rank has another form'
go_on one 4 parallel.data=2 parallel.tensor=2
go_on one 4 parallel.pipeline=2 parallel.context=2
from zero 2 llama parallel.data=2 parallel.zero=3
same one zero 1e-5
[ -s zero/checkpoints/step-00000020/model.00001.safetensors ] || die 'rank 1 wrote no part of the model'
go_on zero 2
go_on zero 1 $alone
go_on zero 2 $(only parallel.tensor=2)
go_on zero 4 parallel.data=4 parallel.zero=1
go_on zero 4 $(only parallel.context=2 parallel.tensor=2 parallel.zero=2)
from data 2 llama parallel.data=2
go_on data 2 $(only parallel.tensor=2)
from tensor 2 llama parallel.tensor=2 parallel.sequence=true
go_on tensor 2
go_on tensor 4 parallel.data=2 parallel.zero=2 parallel.sequence=false
go_on tensor 2 context.mode=pynative $(only parallel.data=2 parallel.zero=3)
from stages 2 llama parallel.pipeline=2 train.micro_batches=2
go_on stages 2
go_on stages 4 $(only parallel.data=4 parallel.zero=3)
go_on stages 4 $(only parallel.pipeline=4 parallel.schedule=zero_bubble)
from ring 4 llama parallel.context=2 parallel.data=2 parallel.zero=3
go_on ring 4
go_on ring 1 $alone
go_on ring 2 $(only parallel.pipeline=2)
from groups 4 llama parallel.data=4 parallel.zero=3 parallel.shard_group=2
go_on groups 4
go_on groups 1 $alone
go_on groups 8 parallel.tensor=2
go_on groups 2 $(only parallel.pipeline=2)
from gpt2 2 gpt2 parallel.tensor=2 parallel.sequence=true train.micro_batches=2
go_on gpt2 2
go_on gpt2 4 $(only parallel.data=4 parallel.zero=3)
go_on gpt2 2 $(only parallel.context=2)
from expert 2 mixtral parallel.expert=2 parallel.zero=3
go_on expert 2
go_on expert 2 $(only parallel.tensor=2)
go_on expert 4 parallel.context=2
# There and back again: the second layout's own checkpoint, on the first.
stopped ring again
ranks 2 0 resume again checkpoint.every=5 $(only parallel.tensor=2)
stopped again back 15
ranks 4 0 resume back $(only parallel.context=2 parallel.data=2 parallel.zero=3)
same ring back 1e-5

# The same layout twice is the same bits.
ranks 2 0 train llama.yaml run.dir=twice checkpoint.every=10 parallel.data=2 parallel.zero=3
same zero twice 0
equal_bytes zero/checkpoints twice/checkpoints 'the same run gave other checkpoints'
equal_bytes zero/model twice/model 'the same run gave another model'

# The folder model/ of a run of ranks, made of their parts, is what its checkpoint says; commands read either.
for dir in zero zero.half expert; do
    run 0 generate "$dir" --prompt 'The ' --max-tokens 8 --temperature 0
    run 0 eval "$dir" "$source/docs/design.md" --seq-len 32
done
run 0 eval zero "$source/docs/design.md" --seq-len 32 --json
cp out sharded
run 0 eval zero/model "$source/docs/design.md" --seq-len 32 --json
cmp out sharded || die 'model/ and the checkpoint of the ranks are not the same model'
# A folder as Hugging Face has it, read in the parts of each layout.
cat >from.yaml <<END
data: {files: [$source/docs/design.md], val_fraction: 0}
train: {steps: 20, batch_size: 8, seq_len: 32}
END
run 0 train from.yaml run.dir=from_one model.from=zero/model
ranks 4 0 train from.yaml run.dir=from model.from=zero/model parallel.tensor=2 parallel.data=2 parallel.zero=3
same from_one from 1e-5
run 0 train from.yaml run.dir=experts_one model.from=expert/model
ranks 2 0 train from.yaml run.dir=experts model.from=expert/model parallel.expert=2
same experts_one experts 1e-5
echo "$checks checks passed"
