#!/usr/bin/env python3
"""Trains one configuration in every precision and prints a Markdown table: final losses, and where each leaves f32.

usage: bench/precision_table.py TENG CONFIG.yaml [key=value ...]   (run folders go to a temporary folder)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SETTINGS = [
    ("fp32", ["precision.level=O0"]),
    ("fp32, kernels of AVX2: another rounding", ["precision.level=O0", "context.cpu_isa=v3"]),
    *((f"{dtype} {level}", [f"precision.level={level}", f"precision.dtype={dtype}"])
      for dtype, levels in (("bf16", ("O1", "O2", "O3", "auto")), ("fp16", ("O1", "O2", "O3", "auto"))) for level in levels),
]


def train(teng, words, folder):
    subprocess.run([teng, "train", *words, f"run.dir={folder}"], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = {line["step"]: line["loss"] for line in lines if line["type"] == "step"}
    evals = [line["val_loss"] for line in lines if line["type"] == "eval"]
    dropped = sum(line["type"] == "note" and "was dropped" in line["text"] for line in lines)
    return steps, evals[-1] if evals else None, dropped


def parted(steps, reference, by):
    return next((step for step in sorted(steps) if abs(steps[step] - reference[step]) > by * reference[step]), "never")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    teng, words = sys.argv[1], sys.argv[2:]
    print("| precision | training loss, mean of the last 20 steps | to fp32 | validation loss | to fp32 | first step off by "
          "0.01 % | by 0.1 % | by 1 % | dropped steps |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        reference = None
        for name, extra in SETTINGS:
            steps, val, dropped = train(teng, words + extra, pathlib.Path(root) / name.replace(" ", "-"))
            last = sum(steps[s] for s in sorted(steps)[-20:]) / 20
            reference = reference or (steps, val, last)
            print(f"| {name} | {last:.4f} | {100 * (last / reference[2] - 1):+.2f} % | {val:.4f} | "
                  f"{100 * (val / reference[1] - 1):+.2f} % | "
                  + " | ".join(str(parted(steps, reference[0], by)) for by in (1e-4, 1e-3, 1e-2))
                  + f" | {dropped} |", flush=True)


main()
