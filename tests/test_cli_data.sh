# Tokenizers and token files through the program: any bytes come back, every format is written, bad files are named.
# test_cli_data.sh TENG
set -eu
. "$(dirname "$0")/cli_common.sh"
cd "$scratch"

# Text to learn from, and bytes that are no text.
i=0
while [ $i -lt 400 ]; do
    echo "Line $i: the quick brown fox jumps over the lazy dog; été, 中文, 🙂 and $((i * i))."
    i=$((i + 1))
done >text.txt
mkdir docs
cp text.txt docs/one.md
for n in 1 2 3 4 5 6 7 8 9; do
    printf '{"text": "document %s of the second kind, the quick brown dog"}\n' $n
done >docs/two.jsonl
head -c 20000 /dev/urandom >random.bin
: >empty

run 0 tokenizer train --vocab-size 300 --out tok.json text.txt
err 'tok.json: 300 tokens'
run 0 tokenizer train docs/one.md docs/two.jsonl --vocab-size=290 --special '<|endoftext|>' --special '<|x|>' --out two.json
run 0 tokenizer train --vocab-size 5000 --out all.json text.txt
err '5000 were asked for, but no pair is left to merge'
run 0 tokenizer info --tokenizer two.json
out '<|x|>'
run 0 tokenizer info --tokenizer tok.json --json
out '"vocab_size": 300'

for tokenizer in tok.json bytes; do
    for file in text.txt random.bin empty; do
        run 0 tokenizer encode --tokenizer $tokenizer $file --out ids.u32
        err 'bytes per token'
        run 0 tokenizer decode ids.u32 --tokenizer $tokenizer --out back
        cmp -s back $file || die "$file does not come back from $tokenizer"
        "$teng" tokenizer decode --tokenizer $tokenizer ids.u32 >back
        cmp -s back $file || die "$file does not come back from $tokenizer on standard output"
    done
done
run 0 tokenizer encode --tokenizer bytes random.bin --out ids.u32 --json
out '"tokens": 20000'
[ "$(wc -c <ids.u32)" = 80000 ] || die "raw ids of 20000 bytes are $(wc -c <ids.u32) bytes"
printf 'Hi!' | "$teng" tokenizer encode --tokenizer bytes - >got
[ "$(cat got)" = '72 105 33' ] || die "ids of Hi!: $(cat got)"
printf 'A<|endoftext|>' >special
run 0 tokenizer encode --tokenizer bytes special --parse-special
out '65 256'
run 0 tokenizer encode --tokenizer bytes special --json
out '"tokens": 14'

# Bad input: status 1, the file named.
run 1 tokenizer encode --tokenizer none.json text.txt
err 'teng tokenizer encode: cannot open none.json'
echo '{"model": 1' >broken.json
run 1 tokenizer info --tokenizer broken.json
err 'broken.json'
run 1 tokenizer encode --tokenizer bytes none.txt
err 'none.txt'
head -c 7 random.bin >odd.u32
run 1 tokenizer decode --tokenizer bytes odd.u32
err 'odd.u32: 7 bytes are no whole number of 32-bit ids'
printf '\001\000\000\000\377\377\000\000' >big.u32
run 1 tokenizer decode --tokenizer bytes big.u32
err 'big.u32'
err 65535
run 1 tokenizer train --vocab-size 300 --out x.json none.txt
err 'none.txt'
[ ! -e x.json ] || die 'a tokenizer was written by a training that failed'

# Token files in every format.
run 0 data prepare --tokenizer tok.json --out tokens docs --val-fraction 0.3
out 'tokens/train.tok: '
out 'tokens/val.tok: '
out 'bytes per token'
out 'data.files=tokens/train.tok data.val_files=tokens/val.tok'
err 'documents in'
run 0 data prepare --tokenizer tok.json --out whole docs --val-fraction 0 --json
out '"documents": 10'
[ -s whole/train.tok ] || die 'whole/train.tok is missing'
[ ! -e whole/val.tok ] || die 'documents were held back with --val-fraction 0'
for format in nanogpt llmc megatron; do
    run 0 data prepare docs --tokenizer tok.json --format $format --out $format --val-fraction 0
    [ -s $format/train.bin ] || die "$format/train.bin is missing"
done
[ -s megatron/train.idx ] || die 'megatron/train.idx is missing'
run 1 data prepare --tokenizer tok.json --out none none.txt
err 'teng data prepare: '
err 'none.txt'

# Ended while it writes: the signal's status, and no unfinished file stays.
yes '{"text": "the quick brown fox jumps over 13 lazy dogs and none of them minds it"}' | head -n 1000000 >big.jsonl || :
"$teng" data prepare big.jsonl --tokenizer tok.json --out ended --threads 1 >out 2>err &
pid=$!
n=0
until ls ended 2>/dev/null | grep -q 'train.tok.tmp'; do
    n=$((n + 1))
    [ $n -lt 600 ] || die "no unfinished file after a minute: $(ls ended) $(cat err)"
    sleep 0.05
done
kill -INT $pid
status=0
wait $pid || status=$?
[ $status = 130 ] || die "data prepare, SIGINT: exit status $status, wanted 130"
[ -z "$(ls ended)" ] || die "data prepare, SIGINT, leaves: $(ls ended)"

# A picture of a run.
mkdir run
cat >run/metrics.jsonl <<'END'
{"type":"run","time":"2026-01-01T00:00:00Z","step":0,"steps":3}
{"type":"step","step":1,"loss":5.5,"lr":0.001,"grad_norm":1,"tokens":64,"tokens_per_s":100,"mfu":null,"step_ms":10}
{"type":"step","step":2,"loss":4.5,"lr":0.001,"grad_norm":1,"tokens":128,"tokens_per_s":100,"mfu":null,"step_ms":10}
{"type":"step","step":3,"loss":4,"lr":0.001,"grad_norm":1,"tokens":192,"tokens_per_s":100,"mfu":null,"step_ms":10}
END
run 0 plot run --out loss.svg --x tokens --log --title 'A & B'
out 'loss.svg: loss of 1 run against tokens'
grep -q '<svg' loss.svg || die 'loss.svg is no picture'
grep -q 'A &amp; B' loss.svg || die 'loss.svg has no title'
run 1 plot none --out none.svg
err none
[ ! -e none.svg ] || die 'a picture was written of nothing'

run 0 devices --threads 1 --json
out '"model"'
out '"f32_gflops"'
run 0 devices
out 'instruction sets'
out 'peak fp32'
echo "$checks command lines"
