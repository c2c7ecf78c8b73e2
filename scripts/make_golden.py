#!/usr/bin/env python3
"""Writes reference values of a model folder, for `teng verify`.

    python3 scripts/make_golden.py MODEL_DIR [--out DIR/golden.safetensors]
    python3 scripts/make_golden.py --random CONFIG.json MODEL_DIR

Needs torch, transformers and safetensors (pip install torch transformers). Runs the model in float32 without dropout on one
batch of random tokens. golden.safetensors holds input_ids and labels i64 [B, T] (labels already shifted, -100 ignored),
logits [B, T, V], loss [1], grad.<parameter> for each parameter, and adamw_loss [steps]: the losses before each step of an
AdamW training on that batch. Its settings are in golden.json beside it. --random makes the folder first: a model with
random weights of the architecture that the configuration file names.
"""
import argparse
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM


def options(words=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model_dir")
    p.add_argument("--out", help="file to write; MODEL_DIR/golden.safetensors without it")
    p.add_argument("--random", metavar="CONFIG.json", help="make MODEL_DIR with random weights first")
    p.add_argument("--shard", metavar="SIZE", default="50GB", help="largest weights file of --random (50KB)")
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--ignored", type=float, default=0.1, help="share of labels that are -100")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--attention", default="eager", help="attn_implementation: eager, sdpa")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95))
    p.add_argument("--eps", type=float, default=1e-8)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--clip", type=float, default=1.0, help="largest norm of all gradients together")
    return p.parse_args(words)


def make_model(args):
    """Random weights, wide enough that every part matters: as initialised, biases are zero and norms are one."""
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.random), dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or ".ln_" in name:
                p.add_(0.1 * torch.randn_like(p))
            elif p.ndim == 1:
                p.copy_(0.05 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * p.shape[-1] ** -0.5)
    model.save_pretrained(args.model_dir, max_shard_size=args.shard)


def make_batch(args, config):
    text = torch.randint(0, config.vocab_size, (args.batch, args.tokens + 1))
    labels = text[:, 1:].clone()
    labels[torch.rand(labels.shape) < args.ignored] = -100
    return text[:, :-1].contiguous(), labels


def loss_of(model, input_ids, labels):
    """The mean over labels that count. A model that adds to its loss (routers) adds it here too."""
    out = model(input_ids=input_ids, use_cache=False)
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)
    aux = getattr(out, "aux_loss", None)
    if aux is not None and getattr(model.config, "output_router_logits", False):
        loss = loss + model.config.router_aux_loss_coef * aux
    return loss, out.logits


def main(words=None):
    args = options(words)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    if args.random:
        make_model(args)
    model = AutoModelForCausalLM.from_pretrained(args.model_dir, dtype=torch.float32,
                                                 attn_implementation=args.attention).eval()
    input_ids, labels = make_batch(args, model.config)
    loss, logits = loss_of(model, input_ids, labels)
    loss.backward()
    out = {"input_ids": input_ids, "labels": labels, "logits": logits.detach().contiguous(),
           "loss": loss.detach().reshape(1)}
    for name, p in model.named_parameters():
        out["grad." + name] = (torch.zeros_like(p) if p.grad is None else p.grad).clone().contiguous()

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=tuple(args.betas), eps=args.eps,
                                  weight_decay=args.weight_decay)
    losses = []
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss, _ = loss_of(model, input_ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        losses.append(loss.item())
    out["adamw_loss"] = torch.tensor(losses)

    path = args.out or os.path.join(args.model_dir, "golden.safetensors")
    save_file(out, path)
    settings = {"case": os.path.basename(os.path.abspath(args.model_dir)), "optimizer": "AdamW", "lr": args.lr,
                "betas": list(args.betas), "eps": args.eps, "weight_decay": args.weight_decay,
                "decay": "all parameters", "clip_grad_norm": args.clip, "steps": args.steps,
                "torch": torch.__version__, "transformers": transformers.__version__}
    with open(os.path.join(os.path.dirname(path) or ".", "golden.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f, indent=1)
        f.write("\n")
    print(f"{path}: {len(out)} tensors, loss {out['loss'].item():.6f}, after {args.steps} steps {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
