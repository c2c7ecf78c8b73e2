#!/usr/bin/env python3
"""Measures what ranks buy on one machine: each strategy on several ranks beside one rank, in turn.

    bench/ranks.py [--ranks 2] [--rounds 3] [--steps 2] [--only one,data,…] [--keep FILE] [--json] [key=value ...]

The same global batch for all, one thread a rank, a core for each. A round measures every strategy once, each in processes of
its own (`teng bench step`); figures are medians over all rounds, ratios are of medians, and in brackets the smallest and
largest of one round. `ceiling`: as many independent runs of one rank beside each other, each on its share of the batch,
without a word between them: what the machine itself allows (shared memory bandwidth, caches, clock). Where PyTorch is
installed for this Python: the same GPT-2 (compare.py) on one process, under torchrun with DistributedDataParallel and with
FSDP (gloo). --keep FILE: rounds are added to those in FILE, so that they can be spread over quiet times. key=value words
go to every teng; the model's shape has options of its own. Not how fast teng is: that is `teng bench step` and compare.py.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# name: words, targets (ratio to one rank) of two ranks
STRATEGIES = {
    "data": (["parallel.data={n}"], 1.85),
    "data, ZeRO 1": (["parallel.data={n}", "parallel.zero=1"], None),
    "data, ZeRO 3": (["parallel.data={n}", "parallel.zero=3"], 1.7),
    "tensor": (["parallel.tensor={n}"], 1.6),
    "tensor, sequence": (["parallel.tensor={n}", "parallel.sequence=true"], 1.6),
    "pipeline": (["parallel.pipeline={n}", "train.micro_batches={m}"], None),
    "pipeline, zero bubble": (["parallel.pipeline={n}", "train.micro_batches={m}", "parallel.schedule=zero_bubble"], None),
}
TORCH = {"torch, one process": "one", "torchrun DDP": "ddp", "torchrun FSDP": "fsdp"}
ALONE, ALONE_CUT, CEILING = "one rank", "one rank, micro-batches", "ceiling"
PEER_OF = {name: "torch, one process" for name in TORCH}


# --- PyTorch ------------------------------------------------------------------------------------------------------

def torch_worker(kind, job, answer):
    """One rank; torchrun starts several of them."""
    import torch
    import torch.distributed as dist

    sys.path.insert(0, HERE)
    import compare

    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = compare.torch_model(job["shape"])
    count = sum(p.numel() for p in model.parameters())
    if kind != "one":
        dist.init_process_group("gloo")
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    rows = job["batch"] // ranks
    drawn = torch.randint(job["shape"]["vocab"], (job["batch"], job["seq"] + 1))[rank * rows:(rank + 1) * rows]
    tokens, labels = drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
    seconds = []
    for step in range(job["steps"] + 1):
        before = time.perf_counter()
        loss = model(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step:
            seconds.append(time.perf_counter() - before)
    if rank == 0:
        with open(answer, "w", encoding="utf-8") as f:
            json.dump({"step_ms": 1e3 * statistics.median(seconds), "parameters": count,
                       "version": "torch " + torch.__version__}, f)
    if kind != "one":
        dist.destroy_process_group()


def run_torch(args, kind):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        job = {"shape": {"layers": args.layers, "heads": args.heads, "width": args.width, "vocab": args.vocab,
                         "positions": args.seq}, "batch": args.batch, "seq": args.seq, "steps": args.steps}
        worker = [os.path.abspath(__file__), "--worker", kind, json.dumps(job), answer.name]
        start = [sys.executable] if kind == "one" else \
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks)]
        env = dict(os.environ, OMP_NUM_THREADS="1")
        done = subprocess.run(start + worker, env=env, stdout=sys.stderr, stderr=subprocess.PIPE, check=False, text=True)
        if done.returncode:
            print(f"torch {kind} failed with status {done.returncode}; it is left out\n{done.stderr[-2000:]}", file=sys.stderr)
            return None
        return json.load(answer)


# --- teng ---------------------------------------------------------------------------------------------------------

def command(args, words, batch):
    shape = [f"model.n_layer={args.layers}", f"model.n_head={args.heads}", f"model.n_embd={args.width}",
             f"model.vocab_size={args.vocab}", f"train.seq_len={args.seq}", f"train.batch_size={batch}",
             "memory.recompute=none", "context.threads=1"]
    return [args.teng, "bench", "step", os.path.join(ROOT, "configs", "gpt2-124m.yaml"), *shape, *words, *args.words,
            "--steps", str(args.steps), "--no-peak", "--json"]


def figures(text, what):
    try:
        a = json.loads(text)
    except ValueError:
        sys.exit(f"{what} gave no figures: {text[:200]!r}")
    return {"step_ms": a["step_ms"]["median"], "parameters": a["parameters"], "version": "teng " + a["version"],
            "loss": a["last_loss"], "communication": a.get("communication")}


def run_alone(args, words):
    """Each on a core of its own; the slowest counts."""
    cores = sorted(os.sched_getaffinity(0))
    many = args.ranks if words is None else 1
    batch = args.batch // many
    env = dict(os.environ, OMP_NUM_THREADS="1")
    running = []
    for i in range(many):
        core = cores[i % len(cores)]
        running.append(subprocess.Popen(["taskset", "-c", str(core), *command(args, words or [], batch)], env=env,
                                        stdout=subprocess.PIPE, text=True))
    answers = [p.communicate()[0] for p in running]
    if any(p.returncode for p in running):
        sys.exit(f"{' '.join(command(args, words or [], batch))} failed")
    answers = [figures(a, "teng") for a in answers]
    return max(answers, key=lambda a: a["step_ms"])


def run_ranks(args, words):
    env = dict(os.environ, OMP_NUM_THREADS="1")
    words = [w.format(n=args.ranks, m=args.micro_batches) for w in words]
    line = [args.teng, "launch", "-n", str(args.ranks), *command(args, words, args.batch)[1:]]
    done = subprocess.run(line, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(line)} ended with status {done.returncode}")
    return figures(done.stdout, " ".join(line))


def stolen():
    """Seconds that other machines on this host took from this one, and all seconds of all cores."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(t) for t in f.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def measure(args, name):
    before = stolen()
    if name == ALONE:
        a = run_alone(args, [])
    elif name == ALONE_CUT:
        a = run_alone(args, [f"train.micro_batches={args.micro_batches}"])
    elif name == CEILING:
        a = run_alone(args, None)
    elif name in STRATEGIES:
        a = run_ranks(args, STRATEGIES[name][0])
    else:
        a = run_torch(args, TORCH[name])
    after = stolen()
    if a:
        a["stolen"] = (after[0] - before[0]) / max(1, after[1] - before[1])
    return a


# --- figures ------------------------------------------------------------------------------------------------------

def target(args, name):
    """Of two ranks; a pipeline's is its ideal, p m / (m + p - 1), less a tenth."""
    if args.ranks != 2:
        return None
    if name.startswith("pipeline"):
        m, p = args.micro_batches, args.ranks
        return 0.9 * p * m / (m + p - 1)
    return STRATEGIES[name][1] if name in STRATEGIES else None


def table(args, rounds):
    rows = []
    for name in [ALONE, ALONE_CUT, CEILING, *STRATEGIES, *TORCH]:
        base_name = PEER_OF.get(name, ALONE_CUT if name.startswith("pipeline") else ALONE)
        mine = [r[name] for r in rounds if r.get(name)]
        if not mine:
            continue
        times = [a["step_ms"] for a in mine]
        row = {"name": name, "n": len(times), "step_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times),
               "tokens_per_s": args.batch * args.seq * 1e3 / statistics.median(times), "version": mine[-1]["version"],
               "stolen": statistics.median(a.get("stolen", 0) for a in mine), "target": target(args, name)}
        for key, of in (("ratio", base_name), ("ratio_one_rank", ALONE), ("of_ceiling", CEILING)):
            pairs = [r[of]["step_ms"] / r[name]["step_ms"] for r in rounds if r.get(name) and r.get(of)]
            if pairs and name != of and not (key != "ratio" and name in TORCH):
                base = statistics.median(r[of]["step_ms"] for r in rounds if r.get(of))
                row[key] = {"of_medians": base / row["step_ms"], "min": min(pairs), "max": max(pairs)}
        losses = {a["loss"] for a in mine if a.get("loss") is not None}
        row["loss"] = max(losses) if losses else None
        if mine[-1].get("communication"):
            row["communication"] = {k: statistics.median(a["communication"][k] for a in mine)
                                    for k in ("ms", "exposed_ms", "hidden_share")}
            row["communication"]["sent_bytes"] = mine[-1]["communication"]["sent_bytes"]
        rows.append(row)
    return rows


def print_rows(rows):
    print("| what | ms a step | tokens/s | × one rank | of the ceiling | communication, ms (hidden) | MB sent by a rank |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        ratio, part, c = r.get("ratio"), r.get("of_ceiling"), r.get("communication")
        cells = [r["name"], f"{r['step_ms']:.0f} ({r['min_ms']:.0f} to {r['max_ms']:.0f})", f"{r['tokens_per_s']:.0f}",
                 f"{ratio['of_medians']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else "",
                 f"{part['of_medians']:.2f}" if part and r["name"] not in (ALONE, ALONE_CUT) else "",
                 f"{c['ms']:.0f} ({100 * c['hidden_share']:.0f} %)" if c else "",
                 ", ".join(f"{a} {b / 1e6:.1f}" for a, b in c["sent_bytes"].items() if b > 1e4) if c else ""]
        if r["target"] and ratio:
            cells[3] += f", target {r['target']:.2f}"
        print("| " + " | ".join(cells) + " |")


def machine(args):
    done = subprocess.run([args.teng, "bench", "tokenizer", "--tokenizer", "bytes", "--drawn-bytes", "1000", "--passes", "1",
                           "--json"], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)["machine"]


def torch_is_there():
    return subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--teng", default=os.path.join(ROOT, "build", "release", "teng"))
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=2, help="timed steps of each, after one")
    p.add_argument("--only", help="names, with ';' between them; all: " + "; ".join([ALONE, ALONE_CUT, CEILING, *STRATEGIES, *TORCH]))
    p.add_argument("--keep", help="JSON file: rounds are added to it, and its rounds count")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--vocab", type=int, default=16768, help="a third of GPT-2's, as 4 layers are of its 12")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq", type=int, default=512)
    p.add_argument("--micro-batches", type=int, default=8, help="of the pipeline")
    p.add_argument("--json", action="store_true")
    p.add_argument("words", nargs="*", metavar="key=value")
    args = p.parse_args()
    if args.rounds < 0 or args.ranks < 1 or args.steps < 1 or args.batch % args.ranks or args.batch % args.micro_batches:
        p.error("--rounds is at least 0, --ranks and --steps 1; --batch is a multiple of --ranks and --micro-batches")
    if not shutil.which("taskset"):
        p.error("taskset is not on the PATH")
    return args, p


def main():
    args, parser = parse()
    names = [ALONE, ALONE_CUT, CEILING, *STRATEGIES, *TORCH]
    if args.only:
        chosen = [n.strip() for n in args.only.split(";")]
        for n in chosen:
            if n not in names:
                parser.error(f"--only {n}: known are {'; '.join(names)}")
        names = [n for n in names if n in chosen]
    if any(n in TORCH for n in names) and not torch_is_there():
        print(f"torch is not installed for {sys.executable}: left out", file=sys.stderr)
        names = [n for n in names if n not in TORCH]
    rounds = []
    if args.keep and os.path.exists(args.keep):
        with open(args.keep, encoding="utf-8") as f:
            rounds = json.load(f)
    for i in range(args.rounds):
        rounds.append({})
        for name in names if i % 2 == 0 else names[::-1]:
            rounds[-1][name] = measure(args, name)
            if rounds[-1][name] and not args.json:
                print(f"round {len(rounds)}: {name}: {rounds[-1][name]['step_ms']:.0f} ms", file=sys.stderr, flush=True)
            if args.keep:
                with open(args.keep, "w", encoding="utf-8") as f:
                    json.dump(rounds, f, indent=1)
    rows = table(args, rounds)
    about = {"machine": machine(args), "ranks": args.ranks, "rounds": len(rounds), "steps": args.steps,
             "flags": " ".join(command(args, [], args.batch)[4:]), "date": time.strftime("%Y-%m-%d")}
    if args.json:
        print(json.dumps({"rows": rows, **about}, indent=2))
        return
    print_rows(rows)
    m = about["machine"]
    print(f"{m['cpu']}, {m['cores']} cores, {m['gemm']}, {about['ranks']} ranks of 1 thread, {about['rounds']} rounds of "
          f"{about['steps']} steps, {about['date']}; {', '.join(sorted({r['version'] for r in rows}))}\n{about['flags']}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        torch_worker(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
    else:
        main()
