#!/usr/bin/env python3
"""Every family and option of config.json against transformers.

    python3 tests/interop_torch/families_interop.py TENG [NAME...]

For each configuration below: a model with random weights; its reference values (scripts/make_golden.py) must hold in both
modes; in bf16 and fp16 its logits are no farther off than those of transformers; the folder that `teng model convert` writes,
whole and cut, must give the same logits, bit for bit, in transformers.
Exit status 77 where torch or transformers are missing.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import make_golden  # noqa: E402

LLAMA = {"model_type": "llama", "vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96}
GPT2 = {"model_type": "gpt2", "vocab_size": 120, "n_embd": 40, "n_layer": 2, "n_head": 5, "n_positions": 64}
MISTRAL = LLAMA | {"model_type": "mistral"}
QWEN2 = LLAMA | {"model_type": "qwen2"}
QWEN3 = LLAMA | {"model_type": "qwen3"}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 2}
QWEN3_MOE = LLAMA | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
                     "head_dim": 16}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.5, "high_freq_factor": 3.0,
               "original_max_position_embeddings": 24}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}
YARN_ALL = {"type": "yarn", "factor": 2.5, "original_max_position_embeddings": 64, "beta_fast": 6, "beta_slow": 0.7,
            "mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False}
CASES = {
    "llama_mqa_bias": LLAMA | {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True, "head_dim": 20},
    "llama_tied_linear": LLAMA | {"tie_word_embeddings": True, "rope_scaling": {"type": "linear", "factor": 3.0},
                                  "rope_theta": 20000.0, "num_hidden_layers": 3},
    "llama_mha_gelu": LLAMA | {"num_key_value_heads": 4, "hidden_act": "gelu", "rms_norm_eps": 1e-3},
    "llama_llama3": LLAMA | {"rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE, "head_dim": 16},
    "llama_yarn": LLAMA | {"rope_scaling": YARN, "head_dim": 16},
    "llama_dynamic": LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 30},
    "mistral_window": MISTRAL | {"sliding_window": 9},
    "mistral_full": MISTRAL | {"sliding_window": None, "head_dim": 10},
    "mistral_yarn": MISTRAL | {"rope_parameters": YARN | {"rope_theta": 50000.0, "attention_factor": 0.9}},
    "mistral_tied": MISTRAL | {"sliding_window": 31, "tie_word_embeddings": True, "num_key_value_heads": 4},
    "qwen2_plain": QWEN2 | {"tie_word_embeddings": False},
    "qwen2_window": QWEN2 | {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 1,
                             "num_hidden_layers": 3},
    "qwen2_mqa": QWEN2 | {"num_key_value_heads": 1, "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen3_bias": QWEN3 | {"attention_bias": True, "head_dim": 24},
    "qwen3_tied": QWEN3 | {"tie_word_embeddings": True, "head_dim": 8, "num_hidden_layers": 4},
    "qwen3_window": QWEN3 | {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1, "head_dim": 12},
    "qwen3_yarn": QWEN3 | {"rope_scaling": YARN_ALL, "rope_theta": 3000.0, "head_dim": 24},
    "gpt2_defaults": GPT2,
    "gpt2_relu_untied": GPT2 | {"n_inner": 72, "activation_function": "relu", "tie_word_embeddings": False},
    "gpt2_by_layer": GPT2 | {"scale_attn_by_inverse_layer_idx": True, "layer_norm_epsilon": 1e-3, "n_layer": 3},
    "gpt2_unscaled": GPT2 | {"activation_function": "gelu", "scale_attn_weights": False, "reorder_and_upcast_attn": True},
    "mixtral_aux": MIXTRAL | {"output_router_logits": True, "router_aux_loss_coef": 0.02},
    "mixtral_window": MIXTRAL | {"sliding_window": 13, "num_experts_per_tok": 3, "tie_word_embeddings": True},
    "mixtral_many": MIXTRAL | {"num_local_experts": 40, "head_dim": 16, "hidden_act": "gelu"},
    "qwen3_moe_plain": QWEN3_MOE,
    "qwen3_moe_aux": QWEN3_MOE | {"norm_topk_prob": True, "output_router_logits": True, "router_aux_loss_coef": 0.1,
                                  "num_hidden_layers": 3},
    "qwen3_moe_mixed": QWEN3_MOE | {"num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3],
                                    "attention_bias": True},
    "qwen3_moe_window": QWEN3_MOE | {"use_sliding_window": True, "sliding_window": 10},
}


def teng(*words):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"teng {' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def logits(folder, input_ids, dtype=torch.float32):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager",
                                                              experts_implementation="eager")
    with torch.no_grad():
        return model.eval()(input_ids=input_ids).logits.float()


def check_16_bits(name, folder, golden):
    """Logits in 16 bits: within the tolerance, or no farther from f32 than transformers' own. In a mixture of experts a choice
    near a tie turns over, here or there, and then no tolerance of rounding holds: only a gross error fails."""
    reference, experts = safetensors.torch.load_file(golden), "moe" in name or "mixtral" in name
    for precision, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        theirs = logits(folder, reference["input_ids"], dtype)
        theirs = float((theirs - reference["logits"]).norm() / reference["logits"].norm())
        for level in ("O1", "O2", "O3"):
            done = subprocess.run([sys.argv[1], "verify", folder, golden, "--precision", precision, "--level", level,
                                   "--threads", "1", "--json"], capture_output=True, text=True, check=False)
            report = json.loads(done.stdout)
            ours = next(t for t in report["tensors"] if t["name"] == "logits")
            print(f"{name}, {precision} {level}: {'holds' if report['holds'] else '%d off' % report['failed']}; logits off by "
                  f"{ours['relative_error']:.1e}, those of transformers by {theirs:.1e}", flush=True)
            if ours["relative_error"] > max(ours["tolerance"], 0.3 if experts else 1.5 * theirs):
                raise AssertionError(f"{name}: logits in {precision} {level}")


def check(name, config, scratch):
    given, folder = os.path.join(scratch, name + ".json"), os.path.join(scratch, name)
    with open(given, "w", encoding="utf-8") as f:
        json.dump(config, f)
    make_golden.main(["--random", given, folder])
    golden = os.path.join(folder, "golden.safetensors")
    worst = {}
    for mode in ("graph", "pynative"):
        report = json.loads(teng("verify", folder, golden, "--mode", mode, "--threads", "1", "--json"))
        worst[mode] = max((t["relative_error"] / t["tolerance"], t["name"]) for t in report["tensors"]
                          if t["tolerance"])
    check_16_bits(name, folder, golden)
    input_ids = torch.randint(0, config["vocab_size"], (2, 40))
    want = logits(folder, input_ids)
    for out, options in (("whole", []), ("cut", ["--shard-size", "0.05MB"])):
        written = os.path.join(scratch, name + "." + out)
        teng("model", "convert", folder, written, *options)
        if not torch.equal(want, logits(written, input_ids)):
            raise AssertionError(f"{name}: transformers gives other logits for the folder that teng wrote ({out})")
    return worst["graph"]


def main():
    names = sys.argv[2:] or CASES
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            try:
                share, tensor = check(name, CASES[name], scratch)
                print(f"{name}: holds; the worst is {tensor} at {share:.3f} of its tolerance", flush=True)
            except AssertionError as e:
                failed += 1
                print(f"{name}: FAILED: {e}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed; torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
