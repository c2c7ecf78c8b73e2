#!/usr/bin/env python3
"""Random models on random layouts of ranks, each against the same run on one rank.

    tests/ranks_sweep.py TENG [--seed 1] [--count 50] [--ranks 2,4,8] [--families gpt2,llama] [--keep FOLDER]
                         [--only KEY[=VALUE]] [--steps 20] [-v]

Each case draws a model (family, heads, key and value heads, sizes that do not divide evenly, tied or untied
embeddings), a batch (odd sequences, micro-batches, documents) and a layout (data, tensor, sequence, pipeline with its
schedules, context, expert, ZeRO and shard groups, fusion, recompute, clipping, precision). Every step's loss and
gradient norm, and every evaluation, must be those of one rank within 1e-5 relative (16 bits: 2e-2). Runs of many steps
may part by more however their sums are ordered, as AdamW scales up gradients that are nothing but rounding. What may
not part is one step from equal state: the layout goes on from checkpoints of the one rank, among them that before the
step where the runs are furthest apart, and the loss and norm of its next step must be those of one rank within 1e-6
(or three times what one rank parts from itself there with the kernels of another instruction set), every first moment
within 1e-5 of its tensor's length. A case whose runs part and whose steps do not is "noisy".

Then the layout's run goes on from its middle on a second layout, drawn for the same model and batch, or on the same:
the same gives equal bits; another the same losses and norms as before, the first step's within 1e-6. Both layouts make
the same bytes of model/model.safetensors from one checkpoint.

A layout that cannot be must be refused before step one with a message that names a key. What fails is printed with the
command lines that show it again, and the exit status is 1. The same seed draws the same cases.

A tool to look for what the tests in ranks.cmake do not have yet; it is not one of them. Needs mpirun.
"""
import argparse
import array
import collections
import filecmp
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

FAMILIES = ["gpt2", "llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen3_moe"]
MIXTURES = ["mixtral", "qwen3_moe"]
DEFAULTS = {"parallel.zero": 0, "parallel.sequence": "false", "parallel.shard_group": 0, "parallel.schedule": "1f1b",
            "parallel.fusion": "auto", "parallel.check": "false", "parallel.checksum_every": 0,
            "memory.recompute": "none", "context.mode": "graph"} # of what draw_layout sets, where it is not 1
ALONE = {"parallel." + axis: 1 for axis in ("data", "tensor", "pipeline", "chunks", "context", "expert")}
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
    shared = size["data"] > 1 or size["context"] > 1 or size["expert"] > 1
    if rng.random() < (0.65 if shared else 0.05):
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


def tensors(folder, kind):
    """{name: floats} of the f32 tensors in the files KIND*.safetensors of a checkpoint, put together from their parts."""
    out = {}
    for name in sorted(os.listdir(folder)):
        if not name.startswith(kind) or not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            head, data = json.loads(file.read(size)), file.read()
        meta = head.pop("__metadata__", {})
        parts = json.loads(meta.get("teng.parts", "{}"))
        for tensor, t in head.items():
            if t["dtype"] != "F32":
                continue
            values = array.array("f", data[slice(*t["data_offsets"])])
            if tensor not in parts:
                out[tensor] = values
                continue
            shape, box = parts[tensor]["shape"], parts[tensor]["box"]
            whole = out.setdefault(tensor, array.array("f", bytes(4 * math.prod(shape))))
            for at, value in zip(places(shape, box), values):
                whole[at] = value
    return out


def places(shape, box):
    """Where the elements of a part lie in its whole: in each dimension RUNS runs of SIZE, STRIDE apart, from BEGIN."""
    at = [0]
    for n, (begin, size, runs, stride) in zip(shape, box):
        along = [begin + r * stride + i for r in range(runs) for i in range(size)]
        at = [a * n + i for a in at for i in along]
    return at


def parted(ours, theirs):
    """The tensor that is furthest from the other's: distance as a share of its length (and of a little of all's)."""
    if set(ours) != set(theirs):
        return float("inf"), "other tensors: %s" % sorted(set(ours) ^ set(theirs))[:3]
    length = {name: math.sqrt(sum(x * x for x in values)) for name, values in theirs.items()}
    little = 1e-2 * math.sqrt(sum(n * n for n in length.values()))
    far, where = 0.0, ""
    for name, values in theirs.items():
        d = math.sqrt(sum((x - y) ** 2 for x, y in zip(ours[name], values))) / max(length[name] + little, 1e-30)
        if not d <= far:
            far, where = d, name
    return far, where


def draw_second(rng, ranks, layout, choice, family, model, common):
    """Another layout that fits the same model and batch, with all that the first one says taken back; now and then the same."""
    kind = rng.random()
    if kind < 0.2:
        return ranks, {}
    undo = {key: DEFAULTS.get(key, 1) for key in layout}
    for _ in range(100 if kind < 0.85 else 0):
        n, m, c = rng.choice(choice), dict(model), dict(common)
        second = draw_layout(rng, n, family, m, c)
        if (m, c) == (model, common):
            return n, {**undo, **second}
    return 1, undo


def refusal(status, said, begun):
    """Whether a run that failed was refused as it should be: a kind of note, its text."""
    if status != "timeout" and not begun and re.search(r"(parallel|train|model|context|memory|data)\.[a-z_]+", said) \
            and not re.search(r"signal|Sanitizer|rank \d+ (died|ended)", said):
        lines = [x for x in said.splitlines() if "error" in x.lower() or "parallel." in x or "context." in x]
        return "refused", "\n".join(lines[:3] or [said[:200]])
    return "BROKEN", "status %s: %s" % (status, said[-1500:])


class Case:
    """The runs of one case: files NAME.yaml and folders *-NAME."""

    def __init__(self, sweep, name, rng, common, limit):
        self.sweep, self.name, self.rng, self.common, self.limit = sweep, name, rng, common, limit
        self.steps = sweep.args.steps
        self.far = 0

    def folder(self, kind, *more):
        return os.path.join(self.sweep.folder, kind + "-" + self.name, *more)

    def start(self, ranks, words, timeout):
        words = ([] if ranks == 1 else ["mpirun", "-n", str(ranks)]) + [self.sweep.args.teng] + words
        return run(words, self.sweep.folder, timeout)

    def train(self, kind, ranks, layout):
        words = ["train", self.name + ".yaml", "run.overwrite=true", "run.dir=%s-%s" % (kind, self.name)]
        return self.start(ranks, words + self.sweep.words({**self.common, **layout}), 150)

    def go_on_from(self, kind, step, until, ranks, layout, into="again"):
        """A run of KIND, stopped behind a step, goes on elsewhere: the folder of that."""
        folder = self.folder(into)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder(kind), folder,
                        ignore=lambda at, names: [n for n in names if n == "model" or n.endswith(".lock") or
                                                  n.startswith("step-") and n != "step-%08d" % step])
        with open(self.folder(kind, "metrics.jsonl")) as file, open(os.path.join(folder, "metrics.jsonl"), "w") as past:
            past.writelines(line for line in file if json.loads(line).get("step", 0) <= step)
        status, said = self.start(ranks, ["resume", folder, "train.steps=%d" % until] + self.sweep.words(layout), 150)
        return folder, status, said

    def step_from(self, kind, step, ranks, layout):
        """What is wrong with the step after a checkpoint of KIND; empty: nothing."""
        sharp = 1e-6 if self.limit == 1e-5 else self.limit
        folder, status, said = self.go_on_from(kind, step, step + 1, ranks, layout)
        if status != 0:
            return "goes on from step %d of %s with status %s: %s" % (step, kind, status, said[-1000:])
        far, where = worst(*({at: x for at, x in figures(f).items() if at == ("step", step + 1)}
                             for f in (self.folder(kind), folder)))
        limit = sharp if far <= sharp else max(sharp, 3 * self.noise(kind, step))
        if far > limit:
            return "one step from equal state parts by %.2e at %s" % (far, where)
        saved = "checkpoints/step-%08d" % (step + 1)
        moments = [{name: x for name, x in tensors(at, "optimizer").items() if ".m." in name}
                   for at in (os.path.join(folder, saved), self.folder(kind, saved))]
        far, where = parted(*moments)
        if far > (10 * limit if self.limit == 1e-5 else 5e-2):
            return "one step from equal state, from %d: moments of %s part by %.2e" % (step, where, far)
        return ""

    def noise(self, kind, step):
        """How far the step after a checkpoint parts from itself on one rank with the kernels of other instruction sets."""
        each = []
        for isa in "v2", "v3", "v4":
            folder, _, _ = self.go_on_from(kind, step, step + 1, 1, {**DEFAULTS, **ALONE, "context.cpu_isa": isa}, "noise")
            each.append({at: x for at, x in figures(folder).items() if at == ("step", step + 1)})
        return max(worst(a, b)[0] for a in each for b in each if a and b)

    def judge(self, status, said, ranks, layout):
        one, many = figures(self.folder("one")), figures(self.folder("many"))
        if status == 0:
            self.far, where = worst(one, many)
            steps = {self.rng.randrange(1, self.steps)}
            if self.far > self.limit and math.isfinite(self.far):
                steps |= {max(1, int(where.split()[1]) - 1), 1, self.steps // 2, self.steps - 1}
            wrong = [w for w in (self.step_from("one", k, ranks, layout) for k in sorted(steps)) if w]
            if wrong or not math.isfinite(self.far):
                return "WRONG", "%.2e at %s; %s" % (self.far, where, "; ".join(wrong))
            return ("same" if self.far <= self.limit else "noisy"), "%.2e at %s" % (self.far, where)
        return refusal(status, said, many)

    def go_on(self, ranks, layout, second_ranks, second):
        """The run of many goes on from its middle on a second layout: a kind of note, its title, its text."""
        half, title = self.steps // 2, "%s goes on: mpirun -n %d %s" % (self.name, second_ranks, " ".join(self.sweep.words(second)))
        folder, status, said = self.go_on_from("many", half, self.steps, second_ranks, second)
        if status != 0:
            begun = ("step", half + 1) in figures(folder)
            kind, text = refusal(status, said, begun)
            return kind, title, text
        far, where = worst(figures(self.folder("many")), figures(folder))
        if not second and far > 0:
            return "WRONG", title, "the same layout, and %.2e at %s" % (far, where)
        wrong = self.step_from("many", half, second_ranks, second)
        exports = []
        for n, words in ((ranks, {}), (second_ranks, second)):
            folder, status, said = self.go_on_from("many", half, half, n, words)
            if status != 0:
                wrong = "status %s of the export: %s" % (status, said[-1000:])
                break
            exports.append(os.path.join(self.sweep.folder, "export-%d-%s" % (len(exports), self.name)))
            shutil.copy(os.path.join(folder, "model/model.safetensors"), exports[-1])
        if len(exports) == 2 and not filecmp.cmp(*exports, shallow=False):
            wrong = "their model.safetensors of step %d are not the same bytes" % half
        if wrong or not math.isfinite(far):
            return "WRONG", title, "%.2e at %s; %s" % (far, where, wrong)
        return ("again" if far <= self.limit else "noisy again"), title, "%.2e at %s" % (far, where)

    def clear(self):
        for name in os.listdir(self.sweep.folder):
            path = os.path.join(self.sweep.folder, name)
            if name.endswith("-" + self.name):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


class Sweep:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.counts = collections.Counter()
        self.refusals = collections.Counter()
        self.far = []

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
                    train=dict(steps=self.args.steps, eval_every=self.args.steps // 2, eval_batches=0),
                    optimizer=dict(lr=1e-3), checkpoint=dict(on_error=False, every=1, keep_max=self.args.steps))
        with open(os.path.join(self.folder, name + ".yaml"), "w") as file:
            json.dump(head, file) # JSON is YAML
        case = Case(self, name, rng, common, 2e-2 if "precision.level" in common else 1e-5)
        title = "%s %s: mpirun -n %d %s" % (name, family, ranks, " ".join(self.words(layout) + self.words(common)))
        status, said = case.train("one", 1, {})
        if status == 0:
            status, said = case.train("many", ranks, layout)
            kind, text = case.judge(status, said, ranks, layout)
        else:
            kind, text = "alone", said
        self.note(kind, title, text)
        if kind == "refused":
            self.refusals[re.sub(r"\d+", "#", text.splitlines()[0])] += 1
        if kind in ("same", "noisy"):
            self.far.append(case.far if kind == "same" and case.limit == 1e-5 else 0)
            self.note(*case.go_on(ranks, layout, *draw_second(rng, ranks, layout, self.args.ranks, family, model, common)))
        if not self.args.keep:
            case.clear()

    def words(self, keys):
        return ["%s=%s" % item for item in keys.items()]

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
