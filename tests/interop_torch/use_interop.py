#!/usr/bin/env python3
"""Models in use against transformers: greedy text, evaluation, fine-tuning.

    python3 tests/interop_torch/use_interop.py TENG [NAME...]

For each configuration of families_interop.py: a model with random weights and a small tokenizer. `teng generate` must write the
tokens of transformers' generate(do_sample=False) behind several prompts, and `teng eval` must give its loss on the same windows.
For one model of each family, in bf16: `configs/finetune.yaml` trains it on, and the result must give the same logits, loss and
gradients in both. Exit status 77 where torch or transformers are missing.
"""
import json
import math
import os
import sys
import tempfile

import families_interop as families
from families_interop import CASES, make_golden, teng, torch, transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
FINETUNE = os.path.join(HERE, "..", "..", "configs", "finetune.yaml")
PROMPTS = ["A", "to be, or not", "the quick brown fox jumps over it", "0123456789 0123456789 xyzzy"]
TUNED = ("llama_tied_linear", "mistral_window", "qwen2_plain", "qwen3_tied", "gpt2_defaults", "mixtral_many", "qwen3_moe_plain")


def make_tokenizer(folder, size):
    """Printable characters, some pairs of letters, and an end token: ids 0 … size - 1."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    alphabet = [c if c != " " else "\u0120" for c in map(chr, range(32, 127))]
    pairs = [(a, b) for a in letters for b in letters][:size - 1 - len(alphabet)]
    vocab = {t: i for i, t in enumerate(alphabet + [a + b for a, b in pairs])}
    tokenizer = Tokenizer(models.BPE(vocab, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    return fast


def make_model(name, scratch):
    config = dict(CASES[name])
    if "dynamic" in name:  # its angles change with the length beyond the positions, where teng's window slides
        config["max_position_embeddings"] = 96
    end = config["vocab_size"] - 1
    given, folder = os.path.join(scratch, name + ".json"), os.path.join(scratch, name)
    with open(given, "w", encoding="utf-8") as f:
        json.dump(config | {"eos_token_id": end, "bos_token_id": None, "pad_token_id": None}, f)
    torch.manual_seed(1)
    make_golden.make_model(make_golden.options(["--random", given, folder]))
    return folder, make_tokenizer(folder, config["vocab_size"])


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def check_text(name, folder, tokenizer, model):
    most = getattr(model.config, "max_position_embeddings", None) or model.config.n_positions
    written = 0
    for prompt in PROMPTS + [" ".join(PROMPTS)[:most // 2]]:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        new = min(48, most - ids.shape[1])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new,
                             pad_token_id=model.config.eos_token_id)
        want = tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)
        for options in ([], ["--no-cache"]):
            got = json.loads(teng("generate", folder, "--prompt", prompt, "--temperature", "0", "--max-tokens", str(new),
                                  "--threads", "1", "--json", *options))["text"]
            if got != want:
                raise AssertionError(f"{name}: behind {prompt!r} {options} teng writes {got!r}, transformers {want!r}")
        written += out.shape[1] - ids.shape[1]
    return written


def check_eval(name, folder, tokenizer, model, scratch):
    """The text's tokens and an end token, in windows that do not overlap; a window predicts its tokens but for the first of all,
    each from those before it in the window and the last of the window before."""
    text = open(os.path.join(HERE, "families_interop.py"), encoding="utf-8").read()[:900].replace("\n", " ")
    path = os.path.join(scratch, "text.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    ids = tokenizer(text).input_ids + [tokenizer.eos_token_id]
    size, nats = 24, 0.0
    for begin in range(0, len(ids) - 1, size):
        window = torch.tensor([ids[begin:begin + size + 1]])
        with torch.no_grad():
            logits = model(input_ids=window[:, :-1]).logits
        nats += torch.nn.functional.cross_entropy(logits[0].double(), window[0, 1:], reduction="sum").item()
    scored = len(ids) - 1
    size_bytes = sum(len(tokenizer.decode([i])) for i in ids[1:-1])
    got = json.loads(teng("eval", folder, path, "--seq-len", str(size), "--threads", "1", "--json"))
    want = {"nats_per_token": nats / scored, "bits_per_byte": nats / size_bytes / math.log(2), "perplexity": math.exp(nats / scored),
            "tokens": scored, "bytes": size_bytes, "windows": math.ceil(scored / size), "window_len": size}
    for key, value in want.items():
        if abs(got[key] - value) > 3e-6 * abs(value):
            raise AssertionError(f"{name}: eval says {key} = {got[key]}, transformers {value}")
    return abs(got["nats_per_token"] / want["nats_per_token"] - 1)


def check_tuning(name, folder, model, tokenizer, scratch):
    half, data, run = (os.path.join(scratch, f"{name}.{part}") for part in ("half", "jsonl", "run"))
    model.to(torch.bfloat16).save_pretrained(half)
    tokenizer.save_pretrained(half)
    with open(data, "w", encoding="utf-8") as f:
        for i in range(40):
            f.write(json.dumps({"prompt": f"{i} and ", "completion": f"{i + 1}"}) + "\n")
    teng("train", FINETUNE, f"model.from={half}", f"data.files={data}", f"run.dir={run}", "train.steps=5", "train.seq_len=32",
         "context.threads=1", *(["model.attn_pdrop=0"] if "gpt2" in name else []))
    tuned = os.path.join(run, "model")
    auto = transformers.AutoModelForCausalLM.from_pretrained(tuned)
    if auto.dtype != torch.float32 or transformers.AutoTokenizer.from_pretrained(tuned).chat_template != tokenizer.chat_template:
        raise AssertionError(f"{name}: the trained folder loads as {auto.dtype}, or without its chat template")
    moved = max((p.detach() - q.detach().float()).abs().max().item()
                for p, q in zip(auto.parameters(), load(half).parameters()))
    if not moved > 1e-6:
        raise AssertionError(f"{name}: training moved nothing")
    make_golden.main([tuned])
    teng("verify", tuned, os.path.join(tuned, "golden.safetensors"), "--threads", "1")


def main():
    names = sys.argv[2:] or list(CASES)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            try:
                folder, tokenizer = make_model(name, scratch)
                model = load(folder)
                written = check_text(name, folder, tokenizer, model)
                error = check_eval(name, folder, tokenizer, model, scratch)
                if name in TUNED:
                    check_tuning(name, folder, model, tokenizer, scratch)
                print(f"{name}: {written} tokens as transformers writes them, loss within {error:.1e}"
                      f"{', trained on' if name in TUNED else ''}", flush=True)
            except AssertionError as e:
                failed += 1
                print(f"{name}: FAILED: {e}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed; torch {torch.__version__}, transformers {transformers.__version__}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
