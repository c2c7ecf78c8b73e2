# Checkpoints of ranks: resume on the same layout to the bit, on any other within rounding, and what reads them.
# test_ranks_resume.sh TENG SOURCE_DIR
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2
. "$(dirname "$0")/ranks_common.sh"
config llama
config mixtral

# from NAME N WORDS…: a run of 20 steps with a checkpoint after 10, and a copy NAME.half that ends there.
from() {
    name=$1
    n=$2
    family=$3
    shift 3
    ranks "$n" 0 train "$family.yaml" "run.dir=$name" checkpoint.every=10 "$@"
    cp -r "$name" "$name.half"
    rm -r "$name.half/checkpoints/step-00000020" "$name.half/model"
    mkdir "$name.half/model"
    cp "$name/model/config.json" "$name.half/model/"
}

# go_on NAME N TOLERANCE WORDS…: the second half on another layout.
go_on() {
    name=$1
    n=$2
    tolerance=$3
    shift 3
    rm -rf again
    cp -r "$name.half" again
    ranks "$n" 0 resume again "$@"
    same "$name" again "$tolerance"
}

run 0 train llama.yaml run.dir=one checkpoint.every=10
from zero 2 llama parallel.data=2 parallel.zero=3
same one zero 1e-5
[ -s zero/checkpoints/step-00000020/model.00001.safetensors ] || die 'rank 1 wrote no part of the model'
go_on zero 2 0
go_on zero 1 1e-5 parallel.data=1 parallel.zero=0
go_on zero 2 1e-5 parallel.data=1 parallel.zero=0 parallel.tensor=2
go_on zero 4 1e-5 parallel.data=4 parallel.zero=1
from tensor 2 llama parallel.tensor=2 parallel.sequence=true
go_on tensor 2 0
go_on tensor 4 1e-5 parallel.data=2 parallel.zero=2 parallel.sequence=false
go_on tensor 2 1e-5 context.mode=pynative parallel.tensor=1 parallel.sequence=false parallel.data=2 parallel.zero=3
# One rank's checkpoint, of the form it has always had, on several; and back.
cp -r one one.half
rm -r one.half/checkpoints/step-00000020
[ -s one/checkpoints/step-00000020/model.safetensors ] || die 'a run of one rank has another form'
go_on one 4 1e-5 parallel.data=2 parallel.tensor=2
from expert 2 mixtral parallel.expert=2
go_on expert 2 0
go_on expert 2 1e-5 parallel.expert=1 parallel.tensor=2

# The same layout twice is the same bits.
ranks 2 0 train llama.yaml run.dir=twice checkpoint.every=10 parallel.data=2 parallel.zero=3
same zero twice 0
cmp zero/model/model.safetensors twice/model/model.safetensors || die 'the same run gave another model'

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
