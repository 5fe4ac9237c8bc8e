#!/usr/bin/env python3
"""Sets a 2×2 square of devices beside tensor parallelism and ZeRO-3, on four NCCL ranks.

  benchmarks/primepar_gpu.py --launch 'mpirun -n 4' --out run
  benchmarks/primepar_gpu.py --dry run          writes the plans and plays them without a GPU

A stack of blocks of width 4096 is trained on several numbers of tokens a step, under the same
micro-batch for all. For each number one `braid compare` runs all plans in turn: step time and the
allocator's peak beside their predictions, in OUT/TOKENS.md and .json. Then the square runs once more
under `braid train --trace`, and OUT/TOKENS.trace.json shows which transfers ran beside products.
Ranks that share one GPU need NVIDIA's MPS and an NCCL that allows it; docs/accuracy.md says how.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "configs" / "examples" / "h200-quarters.json"
SEQUENCE = 2048
MODEL = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 32, "num_hidden_layers": 4, "intermediate_size": 11008,
    "vocab_size": 1024, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
}
TENSOR = {"tp": 4, "tp_kind": "megatron", "cp": 1, "dp": 1, "zero": 0, "ep": 1,
          "recompute": "none"}


def strategies(batch):
    """Plans by name: the strategy of all blocks, and of embedding and head."""
    square = {**TENSOR, "tp_kind": "spatial_temporal", "square": 2, "variant": "plus_minus"}
    shard = {**TENSOR, "tp": 1, "dp": 4, "zero": 3}
    if batch % 4 != 0:  # too few samples: ZeRO over a ring that shares their tokens
        shard = {**TENSOR, "tp": 1, "cp": 4, "zero": 3}
    return {
        "st2x2": (square, TENSOR),
        "st2x2-paper": ({**square, "variant": "paper"}, TENSOR),
        "tp4": (TENSOR, TENSOR),
        "ulysses4": ({**TENSOR, "tp_kind": "ulysses"},) * 2,
        "zero3": (shard, shard),
    }


def call(command, limit):
    """Whether the command ended well; says why where not."""
    print(shlex.join(map(str, command)), flush=True)
    try:
        status = subprocess.run(list(map(str, command)), timeout=limit, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"no end within {limit} s")
        return False
    if status != 0:
        print(f"status {status}")
    return status == 0


def write_plans(arguments, batch):
    """The plan of tensor parallelism with other strategies in it; their files by name."""
    folder = arguments.out / f"{batch * SEQUENCE}"
    folder.mkdir(parents=True, exist_ok=True)
    model, base = folder / "model.json", folder / "base.json"
    model.write_text(json.dumps(MODEL), encoding="utf-8")
    if not call([arguments.braid, "plan", "--model", model, "--cluster", CLUSTER, "--seq", SEQUENCE,
                 "--global-batch", batch, "--algorithm", "tp", "--out", base], 120):
        sys.exit(1)
    files = {}
    for name, (block, outside) in strategies(batch).items():
        plan = json.loads(base.read_text(encoding="utf-8"))
        plan["micro_batches"] = 1
        plan["stages"][0]["strategies"] = [
            {"layers": 1, **outside}, {"layers": MODEL["num_hidden_layers"], **block},
            {"layers": 1, **outside}]
        files[name] = folder / f"{name}.json"
        files[name].write_text(json.dumps(plan), encoding="utf-8")
    return model, files


def measure(arguments, batch):
    """One comparison and one trace."""
    model, files = write_plans(arguments, batch)
    if arguments.dry:
        return all([call([arguments.braid, "train", "--plan", file, "--dry-run"], 120)
                    for file in files.values()])
    tokens = batch * SEQUENCE
    plans = [word for file in files.values() for word in ("--plan", file)]
    source = (["--profile", arguments.profile] if arguments.profile
              else ["--model", model, "--cluster", CLUSTER, "--seq", SEQUENCE])
    launch = shlex.split(arguments.launch)
    compared = call([*launch, arguments.braid, "compare", *source, "--global-batch", batch,
                     "--algorithms", "tp", *plans, "--backend", "nccl", "--steps", arguments.steps,
                     "--timeout", 60, "--out", arguments.out / f"{tokens}.json",
                     "--markdown", arguments.out / f"{tokens}.md"], arguments.limit)
    traced = call([*launch, arguments.braid, "train", "--plan", files["st2x2"], "--backend", "nccl",
                   "--steps", 6, "--timeout", 60,
                   "--trace", arguments.out / f"{tokens}.trace.json"], arguments.limit)
    return compared and traced


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", type=Path, default=ROOT / "build/braid")
    parser.add_argument("--launch", default="", help="what starts the ranks, for example mpirun")
    parser.add_argument("--profile", type=Path, help="price with it, instead of the roofline")
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 2, 4, 8],
                        help=f"samples of {SEQUENCE} tokens a step")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--limit", type=int, default=300, help="seconds for a command")
    parser.add_argument("--out", type=Path, help="folder of results")
    parser.add_argument("--dry", type=Path, metavar="OUT", help="run nothing on a GPU")
    arguments = parser.parse_args()
    arguments.out = arguments.out or arguments.dry
    if arguments.out is None:
        parser.error("--out or --dry names the folder of results")
    failed = [batch for batch in arguments.samples if not measure(arguments, batch)]
    for batch in arguments.samples:
        table = arguments.out / f"{batch * SEQUENCE}.md"
        if table.exists():
            print(f"\n## {batch * SEQUENCE} tokens\n\n{table.read_text(encoding='utf-8')}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
