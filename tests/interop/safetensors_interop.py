#!/usr/bin/env python3
"""Our safetensors against the reference library, both ways: what Python writes we read, what we write Python reads,
and both refuse the same damaged headers. Usage: safetensors_interop.py ST_TOOL. Exit 77 (skipped) without the
packages safetensors and numpy."""
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import safetensors
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOOL = sys.argv[1]
NAMES = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "uint8": "u8", "int16": "i16",
         "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "bool": "bool"}


def tool(*args):
    return subprocess.run([TOOL, *map(str, args)], check=True, capture_output=True, text=True).stdout


def sample():
    rng = np.random.default_rng(1)
    tensors = {}
    for name in NAMES:
        tensors[f"layers.0.{name}"] = rng.integers(0, 2 if name == "bool" else 100, (3, 5)).astype(name)
    tensors["special"] = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], dtype="float32")
    tensors["scalar"] = np.array(7.5, dtype="float32")
    tensors["empty"] = np.zeros((0, 4), dtype="float32")
    tensors['quote " \\ é 中 \t'] = np.arange(24, dtype="int32").reshape(2, 3, 4)
    return tensors


def dump(path):
    return {t["name"]: t for t in map(json.loads, tool("dump", path).splitlines())}


def same(tensors, dumped):
    assert tensors.keys() == dumped.keys(), tensors.keys() ^ dumped.keys()
    for name, value in tensors.items():
        got = dumped[name]
        assert got["dtype"] == NAMES[str(value.dtype)], name
        assert got["shape"] == list(value.shape), name
        assert got["hex"] == value.tobytes().hex(), name


def same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert a[name].tobytes() == b[name].tobytes(), name


def both_ways(folder):
    tensors = sample()
    theirs, ours = folder / "theirs.safetensors", folder / "ours.safetensors"
    save_file(tensors, theirs, metadata={"format": "pt"})
    same(tensors, dump(theirs))
    tool("copy", theirs, ours)
    same_arrays(tensors, load_file(ours))
    with safetensors.safe_open(ours, framework="numpy") as f:
        assert f.metadata() == {"format": "pt"}

    # numpy has no bfloat16: a file by hand, as PyTorch writes it, through us and back
    header = b'{"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}'
    theirs.write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(8)))
    got = dump(theirs)["b"]
    assert (got["dtype"], got["shape"], got["hex"]) == ("bf16", [2, 2], bytes(range(8)).hex())
    tool("copy", theirs, ours)
    (name, back), = safetensors.deserialize(ours.read_bytes())
    assert (name, back["dtype"], back["shape"], bytes(back["data"])) == ("b", "BF16", [2, 2], bytes(range(8)))


def shards(folder):
    tensors = sample()
    single = folder / "single.safetensors"
    save_file(tensors, single)
    tool("shard", single, folder, 200)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
    assert len(set(index["weight_map"].values())) > 2
    loaded = {}
    for shard in set(index["weight_map"].values()):
        part = load_file(folder / shard)
        assert all(index["weight_map"][name] == shard for name in part)
        loaded.update(part)
    same_arrays(tensors, loaded)
    same(tensors, dump(folder))


def reference_accepts(data):
    try:
        safetensors.deserialize(data)
        return True
    except safetensors.SafetensorError:
        return False


def same_refusals(folder):
    """One changed byte in the header. We may be stricter (a type or rank teng lacks), never laxer."""
    good = folder / "good.safetensors"
    save_file({"aa": np.arange(6, dtype="float32").reshape(2, 3), "b": np.arange(3, dtype="uint8")}, good)
    data = good.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    rng = random.Random(2)
    mutants = []
    for i in range(1500):
        mutant = bytearray(data)
        mutant[rng.randrange(header)] = rng.choice(b'0123456789[]{},:" \\aFIU-.') if i % 3 else rng.randrange(256)
        path = folder / f"m{i}"
        path.write_bytes(mutant)
        mutants.append(path)
    accepted = 0
    for path, verdict in zip(mutants, tool("check", *mutants).splitlines(), strict=True):
        theirs = reference_accepts(path.read_bytes())
        accepted += theirs
        assert theirs == (verdict == "ok") or (theirs and "not supported" in verdict), (path.read_bytes(), verdict, theirs)
    assert 0 < accepted < len(mutants)


for case in (both_ways, shards, same_refusals):
    with tempfile.TemporaryDirectory() as name:
        case(Path(name))
    print(f"{case.__name__}: ok")
