"""Makes tests/data/tokenizer/*.json: the parts of real vocabularies that the test vectors need.

    python3 tests/interop/make_tokenizer_vectors.py gpt2.tiktoken llama3/tokenizer.model qwen.tiktoken tests/data/tokenizer

A part holds the 256 bytes and every token that occurs as a substring of a vector's text, under its real id: whatever
merging can meet on these texts is there, so the ids are those of the whole vocabulary. Rank files ship in the
Python packages openai-whisper (gpt2.tiktoken), llama-models (llama3/tokenizer.model; its first 100256 ranks are
cl100k's) and dashscope (qwen.tiktoken). The expected ids in vectors.json come from other implementations
(gpt-3-encoder, gpt-tokenizer, tokenizer-qwen3) and are not made here.
"""
import base64
import json
import os
import sys

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def table():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars, n = {}, 0
    for b in range(256):
        chars[b] = chr(b) if b in keep else chr(256 + n)
        n += b not in keep
    return chars


CHARS = table()


def key(token):
    return "".join(CHARS[b] for b in token)


def parts(ranks, token):
    """The two tokens whose joining gave this one: BPE with the merges that came before."""
    p = [bytes([b]) for b in token]
    while len(p) > 2:
        best = min(range(len(p) - 1), key=lambda i: (ranks.get(p[i] + p[i + 1], 1 << 60), i))
        p[best:best + 2] = [p[best] + p[best + 1]]
    return p


def build(path, limit, texts, split, as_lists, ignore_merges, normalizer, added):
    ranks = {}
    for line in open(path, "rb"):
        token, rank = line.split()
        if int(rank) < limit:
            ranks[base64.b64decode(token)] = int(rank)
    data = [t.encode() for t in texts]
    used = {t: r for t, r in ranks.items() if len(t) == 1 or any(t in d for d in data)}
    used = dict(sorted(used.items(), key=lambda x: x[1]))
    merges = [parts(ranks, t) for t in used if len(t) > 1]
    merges = [[key(a), key(b)] for a, b in merges]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": split is None}
    pre = level if split is None else {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}, level]}
    tokens = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True} for c, i in added.items()]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True,
                                                                       "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
                      "vocab": {key(t): r for t, r in used.items()},
                      "merges": merges if as_lists else [" ".join(m) for m in merges]}}


def main():
    gpt2, llama3, qwen, out = sys.argv[1:]
    texts = [v["text"] for v in json.load(open(os.path.join(out, "vectors.json"), encoding="utf-8"))]
    files = {
        "gpt2": build(gpt2, 1 << 30, texts, None, False, False, None, {"<|endoftext|>": 50256}),
        "cl100k": build(llama3, 100256, texts, SPLIT % "{1,3}", True, True, None, {"<|endoftext|>": 100257}),
        "qwen3": build(qwen, 1 << 30, texts, SPLIT % "", True, False, {"type": "NFC"},
                       {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}),
    }
    for name, value in files.items():
        with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")


if __name__ == "__main__":
    main()
