"""Compares teng's tokenizers with the Python packages `tokenizers` and `tiktoken`, id by id.

    python3 tests/interop/tokenizer_interop.py --teng build/release/teng [--ranks gpt2.tiktoken …] [--text FILE …]

Writes about 20 MB of text (--kb says how much) of many kinds, trains tokenizers in both worlds, encodes with both, and wants equal ids;
decoding must give back every byte, also of files that are not UTF-8. Exit status 0 only if all hold. `--teng` may
name any program that takes the arguments of `teng tokenizer`. Exit status 77: the packages are missing.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe
    import tokenizers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
          r"""|\s*[\r\n]+|\s+(?!\S)|\s+""")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def make_text(size, seed):
    r = random.Random(seed)
    vowels, consonants = "aeiou", "bcdfghjklmnprstvwz"
    words = ["".join(r.choice(consonants) + r.choice(vowels) for _ in range(r.randint(1, 4))) for _ in range(20000)]
    words += ["the", "of", "and", "to", "I'm", "don't", "WE'LL", "it's", "they've", "HE'D", "l'été", "naïve"]
    weights = [1.0 / (i + 1) for i in range(len(words))]
    han = [chr(c) for c in range(0x4E00, 0x9FA5)]
    scripts = [(0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A), (0x905, 0x939), (0xE01, 0xE30), (0x3041, 0x3096),
               (0xAC00, 0xD7A3), (0x370, 0x3FF), (0x1E00, 0x1EFF), (0x2500, 0x257F), (0x10A0, 0x10C5)]
    emoji = ["🙂", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇨🇭", "✂️", "😀", "🤖"]
    spaces = [" ", "  ", "\n", "\n\n", "\t", "\r\n", " ", " ", "　", "\v", "\f", "\x85", " ", "​", "᠎"]
    out, total = [], 0
    while total < size:
        k = r.randrange(9)
        if k <= 2:
            s = " ".join(r.choices(words, weights, k=r.randint(5, 60))) + r.choice([". ", "!\n", "? ", ";\r\n", "\n\n"])
        elif k == 3:
            s = "".join(r.choice(han) for _ in range(r.randint(5, 80))) + r.choice("，。！？、")
        elif k == 4:
            lo, hi = r.choice(scripts)
            s = " ".join("".join(chr(r.randint(lo, hi)) for _ in range(r.randint(1, 9))) for _ in range(r.randint(1, 12)))
        elif k == 5:
            s = "    " * r.randint(0, 6) + f"if (x_{r.randint(0, 999)} >= 0x{r.getrandbits(24):x}) {{ return f(a[i++], \"%d\\n\"); }} // {r.choice(words)}\n"
        elif k == 6:
            s = "".join(r.choice(emoji) + r.choice(["", " ", "e\u0301", "\u0308", "o\u0328\u0304", "가", "Å"]) for _ in range(r.randint(1, 12)))
        elif k == 7:
            s = r.choice(spaces) * r.randint(1, 40) + r.choice(spaces) + r.choice(["x", "", "9", "."])
        else:
            s = "".join(str(r.randint(0, 9)) for _ in range(r.randint(1, 40))) + r.choice([" ", ",", "½", "٣", "Ⅷ", "\n"])
        out.append(s)
        total += len(s.encode())
    return "".join(out)


class Check:
    def __init__(self, teng, folder):
        self.teng, self.folder, self.failures = teng, folder, 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *args):
        p = subprocess.run([*self.teng, "tokenizer", *args], capture_output=True, text=True)
        if p.returncode:
            raise SystemExit(f"teng tokenizer {' '.join(args)}: status {p.returncode}\n{p.stderr}")
        return p.stderr

    def report(self, name, ok, note=""):
        print(f"{'ok  ' if ok else 'FAIL'} {name} {note}", flush=True)
        self.failures += not ok

    def ids(self, tokenizer, file):
        start = time.time()
        self.run("encode", "--tokenizer", tokenizer, file, "--out", self.path("ids.u32"))
        self.took = time.time() - start
        return np.fromfile(self.path("ids.u32"), dtype="<u4")

    def decodes(self, tokenizer, file):
        self.run("decode", "--tokenizer", tokenizer, self.path("ids.u32"), "--out", self.path("back"))
        return open(self.path("back"), "rb").read() == open(file, "rb").read()

    def same(self, name, tokenizer, file, theirs, lossless=True, theirs_s=None):
        mine = self.ids(tokenizer, file)
        theirs = np.asarray(theirs, dtype=np.uint32)
        equal = len(mine) == len(theirs) and bool((mine == theirs).all())
        note = f"{len(mine)} ids, {self.took:.2f} s" + (f" (theirs {theirs_s:.2f} s)" if theirs_s else "")
        if not equal:
            n = min(len(mine), len(theirs))
            at = int(np.argmax(mine[:n] != theirs[:n])) if (mine[:n] != theirs[:n]).any() else n
            note += f"; {len(theirs)} theirs, first differs at {at}: {mine[at:at+6]} theirs {theirs[at:at+6]}"
        self.report(name + ": equal ids", equal, note)
        if lossless:
            self.report(name + ": decode gives the bytes", self.decodes(tokenizer, file))
        return equal


def encode_timed(t, text, special=False):
    start = time.time()
    ids = t.encode(text, add_special_tokens=special).ids
    return ids, time.time() - start


def trained_here(c, corpus, text, file):
    for pattern, regex in (("gpt2", GPT2), ("llama3", LLAMA3), ("qwen2", QWEN2)):
        mine = c.path(f"{pattern}.json")
        c.run("train", "--vocab-size", "4096", "--pattern", pattern, "--out", mine, corpus)
        t = tokenizers.Tokenizer.from_file(mine)
        ids, took = encode_timed(t, text)
        c.same(f"trained here, {pattern}", mine, file, ids, theirs_s=took)
        # The same training by `tokenizers`.
        other = tokenizers.Tokenizer(models.BPE())
        other.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        trainer = trainers.BpeTrainer(vocab_size=4096, min_frequency=2, special_tokens=["<|endoftext|>"],
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
        other.train_from_iterator([open(corpus, encoding="utf-8", newline="").read()], trainer)
        a, b = json.loads(other.to_str())["model"], json.load(open(mine))["model"]
        left = [" ".join(m) if isinstance(m, list) else m for m in a["merges"]]
        c.report(f"trained here, {pattern}: same merges as tokenizers' trainer", left == b["merges"],
                 f"{len(left)} merges" + ("" if left == b["merges"] else
                                          f", {len(b['merges'])} here, first differs at "
                                          f"{next((i for i, (x, y) in enumerate(zip(left, b['merges'])) if x != y), 'the end')}"))


def trained_there(c, text, file):
    """Files as other families ship them, small: made by `tokenizers`, read by teng."""
    sample = text[:400000]

    def bpe(name, build, lossless=True, special=False):
        t = build()
        path = c.path(name + ".json")
        t.save(path)
        ids, took = encode_timed(t, text, special)
        c.same(f"made by tokenizers, {name}", path, file, ids, lossless, took)

    def byte_level(pattern=None, norm=None, prefix=False, digits=False, added=(), ignore_merges=False):
        t = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
        if norm:
            t.normalizer = norm
        steps = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
        if pattern:
            steps += [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        else:
            steps += [pre_tokenizers.ByteLevel(add_prefix_space=prefix)]
        t.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
        t.decoder = decoders.ByteLevel()
        tr = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                 special_tokens=["<|endoftext|>"])
        t.train_from_iterator([sample], tr)
        if added:
            t.add_tokens(list(added))
        return t

    def spiece(meta):
        t = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if meta:
            t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=meta, split=True)
            t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        else:
            t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            t.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁]+|▁+"), "isolated")  # only to train in bounded time
            t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        t.train_from_iterator([sample], trainers.BpeTrainer(vocab_size=2000, special_tokens=special, show_progress=False, limit_alphabet=800))
        d = json.loads(t.to_str())  # byte tokens are model tokens only, as in Llama's file
        d["added_tokens"] = d["added_tokens"][:3]
        if not meta:
            d["pre_tokenizer"] = None
        return tokenizers.Tokenizer.from_str(json.dumps(d))

    bpe("nfc", lambda: byte_level(QWEN2, normalizers.NFC()), lossless=False)
    bpe("nfkd", lambda: byte_level(LLAMA3, normalizers.NFKD()), lossless=False)
    bpe("prefix-space", lambda: byte_level(prefix=True), lossless=False)
    bpe("digits", lambda: byte_level(digits=True))
    bpe("ignore-merges", lambda: byte_level(LLAMA3, ignore_merges=True))
    bpe("added", lambda: byte_level(added=[AddedToken("the", single_word=True), AddedToken("<a>", lstrip=True), "x_1", "naïve",
                                           AddedToken("return", rstrip=True), AddedToken("12", normalized=False)]), lossless=False)
    bpe("added-nfc", lambda: byte_level(QWEN2, normalizers.NFC(), added=[AddedToken("naïve"), AddedToken("e\u0301")]), lossless=False)
    short = text[:300000]
    open(c.path("short.txt"), "w", encoding="utf-8", newline="").write(short)
    for name, meta in (("sentencepiece-style", None), ("metaspace-always", "always"), ("metaspace-first", "first"), ("metaspace-never", "never")):
        t = spiece(meta)
        path = c.path(name + ".json")
        t.save(path)
        ids, took = encode_timed(t, short)
        c.same(f"made by tokenizers, {name}", path, c.path("short.txt"), ids, meta != "always", took)


def ranks(c, path, text, file):
    for pattern, regex in (("gpt2", GPT2), ("llama3", LLAMA3), ("qwen2", QWEN2)):
        out = c.path("ranks.json")
        c.run("tiktoken", path, "--pattern", pattern, "--out", out)
        table = load_tiktoken_bpe(path)
        enc = tiktoken.Encoding("x", pat_str=regex, mergeable_ranks=table, special_tokens={"<|endoftext|>": len(table)})
        start = time.time()
        theirs = enc.encode(text, allowed_special="all")
        took = time.time() - start
        c.same(f"ranks {os.path.basename(path)}, {pattern}: tiktoken", out, file, theirs, theirs_s=took)
        t = tokenizers.Tokenizer.from_file(out)
        c.same(f"ranks {os.path.basename(path)}, {pattern}: tokenizers", out, file, t.encode(text, add_special_tokens=False).ids)


def round_trips(c):
    mine = c.path("qwen2.json")
    r = random.Random(5)
    cases = {"empty": b"", "random bytes": r.randbytes(2_000_000), "spaces": b" " * 3_000_000, "digits": b"7" * 1_000_000,
             "one letter": b"a" * 1_000_000, "zeros": bytes(100_000), "cut character": "é中".encode()[:-1],
             "latin-1": "Grüße, señor. ".encode("latin-1") * 50_000, "surrogates": b"a\xed\xa0\x80b\xc0\xafc\xf4\x90\x80\x80" * 5000,
             "special": b"x<|endoftext|>y<|endoftext|><|endoftext|"}
    for name, data in cases.items():
        file = c.path("bytes.bin")
        open(file, "wb").write(data)
        ids = c.ids(mine, file)
        c.report(f"round trip, {name}", c.decodes(mine, file), f"{len(data)} bytes, {len(ids)} ids, {c.took:.2f} s")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--teng", required=True)
    p.add_argument("--ranks", nargs="*", default=[])
    p.add_argument("--text", nargs="*", default=[])
    p.add_argument("--kb", type=int, default=20000)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        c = Check([a.teng], folder)
        text = make_text(a.kb * 1000, 1) + "".join(open(f, encoding="utf-8", newline="").read() for f in a.text)
        file, corpus = c.path("text.txt"), c.path("corpus.txt")
        open(file, "w", encoding="utf-8", newline="").write(text)
        open(corpus, "w", encoding="utf-8", newline="").write(make_text(a.kb * 200, 2) + text[-a.kb * 100:])
        print(f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}, {len(text.encode())} bytes of text")
        trained_here(c, corpus, text, file)
        round_trips(c)
        trained_there(c, text, file)
        for path in a.ranks:
            ranks(c, path, text, file)
        print("all hold" if not c.failures else f"{c.failures} FAILED")
        return c.failures > 0


if __name__ == "__main__":
    sys.exit(main())
