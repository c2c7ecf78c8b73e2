#!/usr/bin/env python3
"""Random models on random layouts of ranks, each against the same run on one rank.

    tests/ranks_sweep.py TENG [--seed 1] [--count 50] [--ranks 2,4,8] [--families gpt2,llama] [--keep FOLDER]
                         [--only KEY[=VALUE]] [--steps 20] [-v]

Each case draws a model (family, heads, key and value heads, sizes that do not divide evenly, tied or untied
embeddings), a batch (odd sequences, micro-batches, documents) and a layout (data, tensor, sequence, pipeline with its
schedules, context, expert, ZeRO and shard groups, fusion, recompute, clipping, precision). Every step's loss and
gradient norm, and every evaluation, must be those of one rank within 1e-5 relative (16 bits: 2e-2). Some runs part by
more however their sums are ordered, as AdamW scales up gradients that are nothing but rounding: such a case is "noisy",
not wrong, when its first step agrees within 1e-6 and one rank on another instruction set or with other micro-batches
parts from itself as far (within a factor of three). A layout that cannot be must be refused before step one with a message that names a key.
What fails is printed with the command lines that show it again, and the exit status is 1. The same seed draws the same
cases.

A tool to look for what the tests in ranks.cmake do not have yet; it is not one of them. Needs mpirun.
"""
import argparse
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

FAMILIES = ["gpt2", "llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen3_moe"]
MIXTURES = ["mixtral", "qwen3_moe"]
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def draw_model(rng, family):
    heads = rng.choice([2, 3, 4, 4, 4, 6, 8, 8])
    width = heads * rng.choice([4, 8, 8, 12])
    layers = rng.choice([1, 2, 3, 4, 4, 5, 6])
    if family == "gpt2":
        drop = rng.choice([0, 0, 0, 0.1])
        model = dict(n_embd=width, n_layer=layers, n_head=heads, n_positions=128, attn_pdrop=0,
                     resid_pdrop=drop, embd_pdrop=drop)
        if rng.random() < 0.3:
            model["n_inner"] = rng.choice([37, 50, 96])
        return model
    model = dict(hidden_size=width, intermediate_size=rng.choice([37, 48, 48, 50, 64]), num_hidden_layers=layers,
                 num_attention_heads=heads, max_position_embeddings=128,
                 num_key_value_heads=rng.choice([k for k in range(1, heads + 1) if heads % k == 0]),
                 tie_word_embeddings=rng.choice([True, False]))
    if family in ("qwen3", "qwen3_moe"):
        model["head_dim"] = rng.choice([4, 8, 16])
    if family == "mixtral":
        model.update(num_local_experts=rng.choice([3, 4, 4, 8]), num_experts_per_tok=rng.choice([1, 2, 2, 3]))
    if family == "qwen3_moe":
        model.update(num_experts=rng.choice([4, 4, 6, 8]), num_experts_per_tok=rng.choice([1, 2, 2, 3]),
                     moe_intermediate_size=rng.choice([24, 24, 19]), norm_topk_prob=rng.choice([True, False]))
    return model


def draw_common(rng):
    """What one rank gets too."""
    keys = {"train.batch_size": rng.choice([4, 8, 8, 12, 16]), "train.micro_batches": rng.choice([1, 1, 2, 2, 4]),
            "train.seq_len": rng.choice([32, 32, 32, 16, 31, 33, 48, 64])}
    if rng.random() < 0.25:
        keys["data.packing"] = "document"
        if rng.random() < 0.5:
            keys["data.seq_buckets"] = True # drawn when the length is known
    if rng.random() < 0.2:
        keys["optimizer.clip_norm"] = rng.choice([0, 0.1])
    if rng.random() < 0.15:
        keys["optimizer.name"] = "sgd"
    if rng.random() < 0.15:
        keys.update({"precision.level": rng.choice(["O1", "O2", "O3"]), "precision.dtype": "bf16"})
    if rng.random() < 0.1:
        keys["context.deterministic"] = "strict"
    return keys


def fit(rng, size, model, common):
    """Mostly, what the layout needs of model and batch: else nearly all would be refused."""
    key = lambda *names: next(n for n in names if n in model)
    heads, layers = key("num_attention_heads", "n_head"), key("num_hidden_layers", "n_layer")
    tensor = size["tensor"] or 1
    if model[heads] % tensor:
        width = key("hidden_size", "n_embd")
        model[width] = model[width] // model[heads] * tensor
        model[heads] = tensor
    if "num_key_value_heads" in model:
        model["num_key_value_heads"] = rng.choice([k for k in range(1, model[heads] + 1) if model[heads] % k == 0 and
                                                   (k % tensor == 0 or tensor % k == 0)])
    for name in ("intermediate_size", "n_inner", "moe_intermediate_size"):
        if name in model:
            model[name] = -(-model[name] // tensor) * tensor
    for name in ("num_local_experts", "num_experts"):
        if name in model:
            model[name] = -(-model[name] // (size["expert"] or 1)) * (size["expert"] or 1)
    pieces = (2 * size["context"] if size["context"] > 1 else 1) * tensor
    common["train.seq_len"] = max(1, common["train.seq_len"] // pieces) * pieces
    model[layers] = max(model[layers], (size["pipeline"] or 1) * rng.choice([1, 2]))
    rows = (size["data"] or 1) * (size["expert"] or 1) * common["train.micro_batches"]
    common["train.batch_size"] = -(-common["train.batch_size"] // rows) * rows


def draw_layout(rng, ranks, family, model, common):
    keys = {}
    axes = ["data", "data", "tensor", "tensor", "pipeline", "context"]
    axes += ["expert", "expert"] if family in MIXTURES or rng.random() < 0.02 else []
    size = collections.Counter()
    left = ranks
    while left > 1:
        axis = rng.choice(axes)
        size[axis] = (size[axis] or 1) * 2
        left //= 2
    for axis, n in size.items():
        keys["parallel." + axis] = n
    if size["data"] > 1 and rng.random() < 0.65:
        keys["parallel.zero"] = rng.choice([1, 2, 3, 3])
        if size["data"] > 2 and rng.random() < 0.5:
            keys["parallel.shard_group"] = 2
    if size["tensor"] > 1 and rng.random() < 0.5:
        keys["parallel.sequence"] = "true"
    if size["pipeline"] > 1:
        keys["parallel.schedule"] = rng.choice(["gpipe", "1f1b", "interleaved", "zero_bubble"])
        common["train.micro_batches"] = rng.choice([1, 2, 2, 4, 4])
        if keys["parallel.schedule"] == "interleaved":
            keys["parallel.chunks"] = rng.choice([1, 2, 2, 2])
            common["train.micro_batches"] = size["pipeline"]
    if rng.random() < 0.9:
        fit(rng, size, model, common)
    if keys.get("parallel.chunks") == 2 and rng.random() < 0.9:
        layers = "num_hidden_layers" if "num_hidden_layers" in model else "n_layer"
        model[layers] = max(model[layers], 2 * size["pipeline"])
    if "data.seq_buckets" in common:
        long = common["train.seq_len"]
        pieces = (2 * size["context"] if size["context"] > 1 else 1) * (size["tensor"] or 1)
        common["data.seq_buckets"] = "[%d,%d]" % (pieces, long) if pieces < long else "[%d]" % long
    if rng.random() < 0.3:
        keys["parallel.fusion"] = rng.choice(["off", "4KiB", "1B"])
    if rng.random() < 0.3:
        keys["memory.recompute"] = rng.choice(["full", "selective"])
    if (set(size) == {"data"} and rng.random() < 0.3) or rng.random() < 0.02:
        keys["context.mode"] = "pynative"
        keys.pop("memory.recompute", None)
    if rng.random() < 0.2:
        keys["parallel.check"] = "true"
    if rng.random() < 0.2:
        keys["parallel.checksum_every"] = 5
    return keys


def environment():
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
               OMPI_MCA_btl_vader_single_copy_mechanism="none", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    leaks = "detect_leaks=0" # what MPI leaves behind
    env["ASAN_OPTIONS"] = env["ASAN_OPTIONS"] + ":" + leaks if "ASAN_OPTIONS" in env else leaks
    return env


def run(words, folder, timeout):
    try:
        done = subprocess.run(words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return "timeout", (late.stdout or b"").decode(errors="replace")


def figures(folder):
    """{(kind, step): (loss, norm)}"""
    out = {}
    path = os.path.join(folder, "metrics.jsonl")
    for line in open(path) if os.path.exists(path) else []:
        entry = json.loads(line)
        if entry["type"] == "step":
            out["step", entry["step"]] = entry["loss"], entry["grad_norm"]
        elif entry["type"] == "eval":
            out["eval", entry["step"]] = (entry["val_loss"],)
    return out


def worst(one, many):
    """The largest relative difference and where; infinite when the figures are not of the same steps."""
    if set(one) != set(many):
        return float("inf"), "steps %d and %d" % (len(one), len(many))
    far, where = 0.0, ""
    for at in one:
        for a, b, what in zip(one[at], many[at], ("loss", "norm")):
            d = abs(a - b) / max(abs(a), 1e-30)
            if not d <= far:
                far, where = d, "%s %d %s: %.9g and %.9g" % (*at, what, a, b)
    return far, where


def first(figures):
    return {at: x for at, x in figures.items() if at == ("step", 1)}


class Sweep:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.far = []

    def words(self, keys):
        return ["%s=%s" % item for item in keys.items()]

    def case(self, number):
        rng = random.Random("%d/%d" % (self.args.seed, number))
        family = rng.choice(self.args.families)
        ranks = rng.choice(self.args.ranks)
        model, common = draw_model(rng, family), draw_common(rng)
        layout = draw_layout(rng, ranks, family, model, common)
        all_words = " ".join(self.words(layout)) + " " + " ".join(self.words(common)) + " " + json.dumps(model)
        if self.args.only and not all(word in all_words for word in self.args.only):
            return
        name = "%d-%d" % (self.args.seed, number)
        head = dict(model=dict(model, model_type=family),
                    data=dict(files=[SOURCE + "/docs/design.md"], val_fraction=0.1, separator="\n\n"),
                    train=dict(steps=self.args.steps, eval_every=10, eval_batches=0),
                    optimizer=dict(lr=1e-3), checkpoint=dict(on_error=False))
        with open(os.path.join(self.folder, name + ".yaml"), "w") as file:
            json.dump(head, file) # JSON is YAML
        base = [self.args.teng, "train", name + ".yaml", "run.overwrite=true"] + self.words(common)
        many = ["mpirun", "-n", str(ranks)] + base + ["run.dir=many-" + name] + self.words(layout)
        title = "%s %s: mpirun -n %d %s" % (name, family, ranks, " ".join(self.words(layout) + self.words(common)))
        status, said = run(base + ["run.dir=one-" + name], self.folder, 60)
        if status != 0:
            self.note("alone", title, said)
            return
        status, said = run(many, self.folder, 150)
        self.judge(status, said, title, name, common, model)

    def noise(self, name, common, one):
        """How far runs on one rank part whose sums are made in other orders: other instruction sets, micro-batches."""
        far = 0
        more = {"context.cpu_isa": ["v2", "v3"],
                "train.micro_batches": [n for n in (1, 2, 4, common["train.batch_size"])
                                        if common["train.batch_size"] % n == 0]}
        for key, values in more.items():
            for value in values:
                words = [self.args.teng, "train", name + ".yaml", "run.overwrite=true", "run.dir=noise-" + name]
                if run(words + self.words({**common, key: value}), self.folder, 60)[0] == 0:
                    far = max(far, worst(one, figures(self.folder + "/noise-" + name))[0])
        return far

    def judge(self, status, said, title, name, common, model):
        one, many = figures(self.folder + "/one-" + name), figures(self.folder + "/many-" + name)
        limit = 2e-2 if "precision.level" in common else 1e-5
        if status == 0:
            far, where = worst(one, many)
            if far <= limit:
                self.note("same", title, "%.1e" % far)
                self.far.append(far if limit == 1e-5 else 0)
            elif (noise := self.noise(name, common, one)) * 3 >= far and \
                    worst(first(one), first(many))[0] <= (1e-6 if limit == 1e-5 else limit):
                self.note("noisy", title, "%.2e at %s; one rank by %.2e" % (far, where, noise))
            else:
                self.note("WRONG", title, "%.2e at %s\n  model %s" % (far, where, json.dumps(model)))
        elif status != "timeout" and not many and re.search(r"(parallel|train|model|context|memory|data)\.[a-z_]+", said) \
                and not re.search(r"signal|Sanitizer|rank \d+ (died|ended)", said):
            lines = [x for x in said.splitlines() if "error" in x.lower() or "parallel." in x]
            self.note("refused", title, "\n".join(lines[:3]))
            self.refusals[re.sub(r"\d+", "#", lines[0] if lines else said[:200])] += 1
        else:
            self.note("BROKEN", title, "status %s: %s\n  model %s" % (status, said[-1500:], json.dumps(model)))

    def note(self, kind, title, text):
        self.counts[kind] += 1
        if kind.isupper() or kind == "alone" or self.args.verbose:
            print("%-8s %s\n  %s" % (kind, title, text.strip()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("teng")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case of the seed")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="cases whose keys or model hold these texts")
    parser.add_argument("--keep", help="folder for the runs, which stay")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    args.teng = os.path.abspath(args.teng)
    args.ranks = [int(n) for n in args.ranks.split(",")]
    args.families = args.families.split(",")
    folder = args.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    sweep = Sweep(args, os.path.abspath(folder))
    for number in range(args.first, args.first + args.count):
        sweep.case(number)
    if not args.keep:
        shutil.rmtree(folder)
    print(dict(sweep.counts), "worst that passed: %.1e" % max(sweep.far, default=0))
    for text, n in sweep.refusals.most_common():
        print("%4d  %s" % (n, text))
    return any(kind.isupper() for kind in sweep.counts)


if __name__ == "__main__":
    sys.exit(main())
