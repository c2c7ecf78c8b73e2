#!/usr/bin/env python3
"""Measures teng beside the programs that people use now, where they are installed, on the same work.

    bench/compare.py [--what small,124m,tokenizer] [--peers torch,torch.compile,tokenizers,tiktoken]
                     [--rounds 3] [--steps N] [--threads N] [--dtypes fp32,bf16] [--file TEXT] [--json]

Rounds are interleaved (teng, peer, teng, peer ...), each program in a process of its own, so that a busy machine meets
all alike; what counts are the ratios of medians, printed with the smallest and largest ratio of one pair. A step is
forward, backward, clip and AdamW (fused) of GPT-2, written out below in plain PyTorch; bf16 is autocast there and
precision.level=O2 in teng. Not a benchmark of teng alone: that is `teng bench`.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

SHAPES = {
    "124m": {"config": "gpt2-124m.yaml", "layers": 12, "heads": 12, "width": 768, "vocab": 50257, "positions": 1024,
             "batch": 4, "seq": 1024, "steps": 3},
    "small": {"config": "gpt-small.yaml", "layers": 4, "heads": 4, "width": 128, "vocab": 257, "positions": 64,
              "batch": 12, "seq": 64, "steps": 100},
}


def peak_rss():
    """Of this process. getrusage's figure would include what the parent had."""
    with open("/proc/self/status", encoding="ascii") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) * 1024


# --- PyTorch ------------------------------------------------------------------------------------------------------

def torch_model(shape):
    """GPT-2 as published: learned positions, pre-norm blocks, GELU (tanh), tied head, no dropout."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    width, heads = shape["width"], shape["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(shape["vocab"], width), nn.Embedding(shape["positions"], width)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.norm = nn.LayerNorm(width)
            for p in self.parameters():
                nn.init.normal_(p, std=0.02) if p.dim() > 1 else None

        def forward(self, tokens, labels):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return GPT()


def torch_worker(job):
    began = time.perf_counter()
    import torch

    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    shape = job["shape"]
    model = torch_model(shape)
    decay = [p for n, p in model.named_parameters() if p.dim() > 1 and not n.startswith(("tokens", "positions"))]
    kept = {id(p) for p in decay}
    rest = [p for p in model.parameters() if id(p) not in kept]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95), fused=True)
    loss_of = torch.compile(model) if job["compile"] else model
    drawn = torch.randint(shape["vocab"], (shape["batch"], shape["seq"] + 1))
    tokens, labels = drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
    seconds, losses, first = [], [], None
    for step in range(job["steps"] + 1):
        before = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=job["dtype"] == "bf16"):
            loss = loss_of(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        now = time.perf_counter()
        if step == 0:
            first = now - began
        else:
            seconds.append(now - before)
    return {"rate": shape["batch"] * shape["seq"] / statistics.median(seconds), "first_step_s": first,
            "peak_rss_bytes": peak_rss(), "parameters": sum(p.numel() for p in model.parameters()),
            "losses": [losses[0], losses[-1]], "version": "torch " + torch.__version__}


# --- tokenizers ---------------------------------------------------------------------------------------------------

def cut(text, size=100_000):
    """Pieces whose ids joined are those of the whole: each begins with a letter after one line break."""
    pieces, begin = [], 0
    for m in re.finditer(r"(?<=\S)\n(?=[A-Za-z])", text):
        if m.end() - begin >= size:
            pieces.append(text[begin:m.end()])
            begin = m.end()
    return pieces + [text[begin:]]


def read_tokenizer(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def split_pattern(spec):
    for part in spec["pre_tokenizer"].get("pretokenizers", [spec["pre_tokenizer"]]):
        if "pattern" in part:
            return part["pattern"]["Regex"]
    return r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_of_char():
    """GPT-2's printable stand-ins for bytes, back to the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {chr(b): b for b in plain}, 256
    for b in range(256):
        if b not in plain:
            table[chr(extra)] = b
            extra += 1
    return table


def tokenizers_worker(job):
    os.environ["RAYON_NUM_THREADS"] = str(job["threads"])
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if job["threads"] > 1 else "false"
    import tokenizers

    with open(job["file"], encoding="utf-8") as f:
        text = f.read()
    size = len(text.encode())
    if job["train"]:
        from tokenizers import decoders, models, pre_tokenizers, trainers

        spec = read_tokenizer(job["tokenizer"])
        t = tokenizers.Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(split_pattern(spec)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=job["train"], min_frequency=2, show_progress=False,
                                      special_tokens=["<|endoftext|>"],
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        before = time.perf_counter()
        t.train([job["file"]], trainer)
        rate, ids = size / 1e6 / (time.perf_counter() - before), None
    else:
        t, pieces = tokenizers.Tokenizer.from_file(job["tokenizer"]), cut(text)
        t.encode_special_tokens = True  # written out in a text they are text, as for the others
        before = time.perf_counter()
        encoded = t.encode_batch_fast(pieces, add_special_tokens=False)
        rate = size / 1e6 / (time.perf_counter() - before)
        ids = [i for e in encoded for i in e.ids]
    return {"rate": rate, "ids": ids, "peak_rss_bytes": peak_rss(), "version": "tokenizers " + tokenizers.__version__}


def tiktoken_worker(job):
    import tiktoken

    spec, back = read_tokenizer(job["tokenizer"]), byte_of_char()
    special = {a["content"]: a["id"] for a in spec["added_tokens"]}
    ranks = {bytes(back[c] for c in token): i for token, i in spec["model"]["vocab"].items() if token not in special}
    encoding = tiktoken.Encoding("compared", pat_str=split_pattern(spec), mergeable_ranks=ranks, special_tokens=special)
    with open(job["file"], encoding="utf-8") as f:
        text = f.read()
    pieces = cut(text)
    encoding.encode_ordinary(pieces[0])
    before = time.perf_counter()
    if job["threads"] == 1:
        encoded = [encoding.encode_ordinary(piece) for piece in pieces]
    else:
        encoded = encoding.encode_ordinary_batch(pieces, num_threads=job["threads"])
    rate = len(text.encode()) / 1e6 / (time.perf_counter() - before)
    return {"rate": rate, "ids": [i for e in encoded for i in e], "peak_rss_bytes": peak_rss(),
            "version": "tiktoken " + tiktoken.__version__}


WORKERS = {"torch": torch_worker, "torch.compile": torch_worker, "tokenizers": tokenizers_worker,
           "tiktoken": tiktoken_worker}


# --- running programs -----------------------------------------------------------------------------------------------

def run_teng(args, words):
    command = [args.teng, "bench", *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout)


def run_peer(peer, job):
    """A process of its own: this file again, its answer in a file."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        env = dict(os.environ, OMP_NUM_THREADS=str(job["threads"]))
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--worker", peer, answer.name],
                              input=json.dumps(job), text=True, env=env, check=False, stdout=sys.stderr)
        if done.returncode:
            print(f"{peer} failed with status {done.returncode}; it is left out", file=sys.stderr)
            return None
        return json.load(answer)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def interleave(args, rounds, teng, peer):
    """Pairs of answers, in turn; None when the peer fails."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(teng())
        theirs.append(peer())
        if theirs[-1] is None:
            return None
    ratios = [a["rate"] / b["rate"] for a, b in zip(ours, theirs)]
    row = {"teng": spread([a["rate"] for a in ours]), "peer": spread([b["rate"] for b in theirs])}
    row["ratio"] = {"of_medians": row["teng"]["median"] / row["peer"]["median"], "min": min(ratios), "max": max(ratios)}
    for name, answers in (("teng", ours), ("peer", theirs)):
        for key in ("peak_rss_bytes", "planned_bytes", "first_step_s", "mfu"):
            if answers[-1].get(key) is not None:
                row[f"{name}_{key}"] = statistics.median(a[key] for a in answers)
        row[f"{name}_version"] = answers[-1]["version"]
    return row, ours[-1], theirs[-1]


# --- what is compared -------------------------------------------------------------------------------------------------

def compare_steps(args, what, peers, rows):
    shape = SHAPES[what]
    steps = args.steps or shape["steps"]
    for dtype in args.dtypes.split(","):
        for mode in ("graph", "pynative") if what == "small" else ("graph",):
            words = ["step", os.path.join(ROOT, "configs", shape["config"]), f"train.batch_size={shape['batch']}",
                     f"train.seq_len={shape['seq']}", f"context.threads={args.threads}", f"context.mode={mode}",
                     "--steps", str(steps)]
            if dtype == "bf16":
                words += ["precision.level=O2", "precision.dtype=bf16"]

            def teng():
                a = run_teng(args, words)
                return {"rate": a["tokens_per_s"], "peak_rss_bytes": a["peak_rss_bytes"], "mfu": a["mfu"],
                        "planned_bytes": a["planned_bytes"],
                        "first_step_s": a["startup_ms"] / 1e3, "parameters": a["parameters"],
                        "version": "teng " + a["version"]}

            name = f"teng {mode} {dtype}"
            if not peers:
                alone = [teng() for _ in range(args.rounds)]
                rows.append({"what": what, "teng": spread([a["rate"] for a in alone]), "name": name, "unit": "tokens/s",
                             "teng_version": alone[-1]["version"]})
            for peer in peers:
                job = {"shape": shape, "steps": steps, "threads": args.threads, "dtype": dtype,
                       "compile": peer == "torch.compile"}
                measured = interleave(args, args.rounds, teng, lambda: run_peer(peer, job))
                if measured is None:
                    continue
                row, ours, theirs = measured
                if ours["parameters"] != theirs["parameters"]:
                    sys.exit(f"not the same work: teng has {ours['parameters']} parameters, {peer} {theirs['parameters']}")
                rows.append({"what": what, "name": name, "peer_name": peer, "unit": "tokens/s",
                             "flags": " ".join(words[2:]), **row})


def own_text(path):
    """The texts of this project."""
    with open(path, "w", encoding="utf-8") as out:
        for folder in ("docs", "src", "include", "tests"):
            for base, _, names in sorted(os.walk(os.path.join(ROOT, folder))):
                for name in sorted(n for n in names if n.endswith((".md", ".c", ".h", ".def"))):
                    with open(os.path.join(base, name), encoding="utf-8") as f:
                        out.write(f.read())


def compare_tokenizers(args, peers, rows):
    with tempfile.TemporaryDirectory() as folder:
        file, tokenizer = args.file or os.path.join(folder, "text.txt"), args.tokenizer
        if not args.file:
            own_text(file)
        if not tokenizer:
            tokenizer = os.path.join(folder, "tokenizer.json")
            subprocess.run([args.teng, "tokenizer", "train", file, "--vocab-size", str(args.vocab), "--out", tokenizer],
                           check=True, stderr=subprocess.DEVNULL)
        ids_file = os.path.join(folder, "ids")
        subprocess.run([args.teng, "tokenizer", "encode", "--tokenizer", tokenizer, file, "--out", ids_file], check=True,
                       stderr=subprocess.DEVNULL)
        with open(ids_file, "rb") as f:
            raw = f.read()
        ids = [int.from_bytes(raw[i:i + 4], "little") for i in range(0, len(raw), 4)]
        words = ["tokenizer", "--tokenizer", tokenizer, "--file", file, "--threads", str(args.threads)]

        def teng(train):
            a = run_teng(args, words + (["--train-vocab", str(args.vocab), "--passes", "1"] if train else []))
            return {"rate": a["train_mb_per_s" if train else "mb_per_s"], "version": "teng " + a["version"]}

        jobs = [("encode", p, 0) for p in peers] + [("train", p, args.vocab) for p in peers if p == "tokenizers"]
        for what, peer, train in jobs:
            job = {"tokenizer": tokenizer, "file": file, "threads": args.threads, "train": train}
            measured = interleave(args, args.rounds, lambda: teng(train), lambda: run_peer(peer, job))
            if measured is None:
                continue
            row, _, theirs = measured
            same = theirs["ids"] == ids if theirs["ids"] is not None else None
            rows.append({"what": "tokenizer " + what, "name": "teng " + what, "peer_name": peer, "unit": "MB/s",
                         "same_ids": same, **row})
        if not jobs:
            rates = spread([teng(0)["rate"] for _ in range(args.rounds)])
            rows.append({"what": "tokenizer encode", "name": "teng encode", "unit": "MB/s", "teng": rates,
                         "teng_version": ""})


def installed(peer):
    module = peer.split(".")[0]
    return subprocess.run([sys.executable, *(["-S"] if sys.flags.no_site else []), "-c", f"import {module}"],
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def gib(row, key):
    return f"{row[key] / 2**30:.2f} GiB" if row.get(key) else "-"


def print_row(row):
    text = f"{row['what']}: {row['name']} {row['teng']['median']:.1f} {row['unit']}"
    text += f" ({row['teng']['min']:.1f} to {row['teng']['max']:.1f})"
    if "peer" in row:
        text += f" | {row['peer_name']} {row['peer']['median']:.1f} ({row['peer']['min']:.1f} to {row['peer']['max']:.1f})"
        text += f" | {row['ratio']['of_medians']:.2f} x ({row['ratio']['min']:.2f} to {row['ratio']['max']:.2f})"
        text += f" | peak RSS {gib(row, 'teng_peak_rss_bytes')}, {gib(row, 'peer_peak_rss_bytes')}"
        if "teng_mfu" in row:
            text += f" | mfu {row['teng_mfu']:.1%}"
        if "teng_planned_bytes" in row:
            text += f", planned {row['teng_planned_bytes'] / row['teng_peak_rss_bytes'] - 1:+.1%} of RSS"
        if "teng_first_step_s" in row:
            text += f" | to the first step {row['teng_first_step_s']:.2f} s, {row['peer_first_step_s']:.1f} s"
        text += f" | {row['teng_version']}, {row['peer_version']}"
        if row.get("same_ids") is not None:
            text += " | same ids" if row["same_ids"] else " | OTHER IDS"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--teng", default=os.path.join(ROOT, "build", "release", "teng"))
    parser.add_argument("--what", default="small,124m,tokenizer", help="of small, 124m, tokenizer")
    parser.add_argument("--peers", default="torch,torch.compile,tokenizers,tiktoken")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="timed steps of a round; 0: 3 of 124m, 100 of small")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--file", help="UTF-8 text for tokenizers; without it this project's own")
    parser.add_argument("--tokenizer", help="tokenizer.json, byte-level BPE; without it one is trained on the text")
    parser.add_argument("--vocab", type=int, default=16384, help="tokens of a training")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.rounds < 1 or args.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    whats = args.what.split(",")
    for what in whats:
        if what not in ("small", "124m", "tokenizer"):
            parser.error(f"--what {what}: known are small, 124m, tokenizer")
    there, missing = [], []
    for peer in args.peers.split(","):
        if peer not in WORKERS:
            parser.error(f"--peers {peer}: known are {', '.join(WORKERS)}")
        wanted = "tokenizer" in whats if "tok" in peer else whats != ["tokenizer"]
        if wanted:
            (there if installed(peer) else missing).append(peer)
    say = sys.stderr if args.json else sys.stdout
    for peer in missing:
        print(f"no peer: {peer} is not installed for {sys.executable}", file=say, flush=True)
    rows = []
    for what in whats:
        before = len(rows)
        if what == "tokenizer":
            compare_tokenizers(args, [p for p in there if "tok" in p], rows)
        else:
            compare_steps(args, what, [p for p in there if "torch" in p], rows)
        if not args.json:
            for row in rows[before:]:
                print_row(row)
    machine = run_teng(args, ["tokenizer", "--tokenizer", "bytes", "--drawn-bytes", "1000", "--passes", "1"])["machine"]
    if args.json:
        print(json.dumps({"rows": rows, "missing": missing, "threads": args.threads, "rounds": args.rounds,
                          "machine": machine, "date": time.strftime("%Y-%m-%d")}, indent=2))
    else:
        print(f"{machine['cpu']}, {machine['cores']} cores, {args.threads} threads each, {machine['gemm']}, "
              f"{time.strftime('%Y-%m-%d')}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        result = WORKERS[sys.argv[2]](json.load(sys.stdin))
        with open(sys.argv[3], "w", encoding="utf-8") as f:
            json.dump(result, f)
    else:
        main()
