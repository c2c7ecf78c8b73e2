# The article's program at small sizes: it learns, goes on from its checkpoints as if it had never stopped, and has the
# losses of `teng train configs/article.yaml` at the same sizes. test_article.sh TENG SOURCE_DIR ARTICLE CUSTOM_OP
set -eu
. "$(dirname "$0")/cli_common.sh"
source=$2 article=$3 plugin=$4
cd "$scratch"

i=0
while [ $i -lt 160 ]; do
    i=$((i + 1))
    printf 'Paragraph %d of %d: the quick brown fox jumps over the lazy dog.\n\n' $i $((i * i % 97))
done >text.txt

sizes='seq_len=32 batch_size=8 micro_batches=2 vocab_size=257 hidden_size=32 num_layers=2 num_heads=2 lr=3e-3
    steps=24 eval_every=12 save_every=10 keep_max=9 threads=1'
losses() { # the lines of LossMonitor and of the evaluation
    grep -e ' loss ' "$1" | sed 's/  lr .*//'
}
"$article" text=text.txt ckpt=one $sizes >whole || die 'article fails'
first=$(sed -n 's,^step 1/24 .* loss \([0-9.]*\).*,\1,p' whole) last=$(sed -n 's,^step 24/24 .* loss \([0-9.]*\).*,\1,p' whole)
awk -v a="$first" -v b="$last" 'BEGIN { exit !(a > 5.4 && a < 5.7 && b < a - 1) }' ||
    die "the loss goes from $first to $last"
for line in 'step 10/24 ' 'steps 11-20: ' 'all steps: ' 'step 12  held-back documents: loss '; do
    grep -q -e "^$line" whole || die "article does not say \"$line\": $(cat whole)"
done
[ -d one/step-00000010 ] && [ -d one/step-00000020 ] && [ -d one/step-00000024 ] || die "checkpoints: $(ls one)"

# As after a crash behind step 20: the last checkpoint is gone.
rm -r one/step-00000024
"$article" text=text.txt ckpt=one $sizes >rest || die 'article fails to go on'
grep -q -e '^going on after step 20$' rest || die "article does not go on: $(cat rest)"
grep -q -e '^step 10/24 ' rest && die 'article began anew'
[ "$(losses rest | tail -n 2)" = "$(losses whole | tail -n 2)" ] || die "losses differ: $(losses whole; losses rest)"

"$article" text=text.txt ckpt=two mode=pynative $sizes >eager || die 'article fails in pynative'
[ "$(losses eager)" = "$(losses whole)" ] || die "losses differ between the modes: $(losses whole; losses eager)"

# The same run as a configuration, with a plugin that it does not use.
"$teng" train "$source/configs/article.yaml" run.dir=run 'data.files=[text.txt]' train.seq_len=32 model.n_positions=32 \
    train.batch_size=8 train.micro_batches=2 model.vocab_size=257 model.n_embd=32 model.n_layer=2 model.n_head=2 \
    optimizer.lr=3e-3 train.steps=24 train.eval_every=12 checkpoint.every=10 context.threads=1 \
    "context.plugins=[$plugin]" >out || die "teng train: $(cat out)"
for step in 1 10 20 24; do
    want=$(sed -n "s,^step $step/24 .* loss \([0-9.]*\) .*,\1,p" whole)
    got=$(sed -n "s/.*\"type\":\"step\",\"step\":$step,.*\"loss\":\([0-9.e-]*\),.*/\1/p" run/metrics.jsonl)
    [ "$(printf '%.6f' "$got")" = "$want" ] || die "step $step: article has loss $want, teng train $got"
done

# A finished training has nothing to do; wrong words are answered.
"$article" text=text.txt ckpt=one $sizes >again || die 'article fails when all is done'
grep -q -e '^step ' again && die 'article trained beyond its last step'
"$article" text=text.txt hiden_size=32 2>err && die 'article took hiden_size'
grep -q 'hiden_size=32 is not key=value.*hidden_size' err || die "article says: $(cat err)"
"$article" steps=3 2>err && die 'article took no text'
grep -q 'text=FILE' err || die "article says: $(cat err)"
"$article" text=absent.txt $sizes 2>err && die 'article took an absent file'
grep -q 'absent.txt' err || die "article says: $(cat err)"
"$article" text=text.txt ckpt=one $sizes num_heads=3 2>err && die 'article took 3 heads of 32'
grep -q 'num_heads must divide hidden_size' err || die "article says: $(cat err)"
"$article" text=text.txt ckpt=one $sizes seed=2 2>err && die 'article went on with another seed'
grep -q 'made with seed 1' err || die "article says: $(cat err)"
