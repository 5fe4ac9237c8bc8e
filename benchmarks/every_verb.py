#!/usr/bin/env python3
"""Every verb on every family of models, at sizes that nothing else uses.

    benchmarks/every_verb.py --program build/braid --device cuda --cluster configs/examples/h200.json
    benchmarks/every_verb.py --device cpu --ranks 3 --precision fp32 --cluster configs/examples/four-threads.json

Models are tiny and their sizes odd, so that a step takes milliseconds. Prints one row a family and one column a verb:
the seconds it took, or its exit status; then what failed, with the command line. Fails if anything failed. A plan that
this machine cannot hold is a failure here: all of them are small.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

DECODER = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 200,
           "vocab_size": 301, "max_position_embeddings": 80}
GROUPED = DECODER | {"num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                     "hidden_act": "silu"}
FAMILIES = {
    "bert": DECODER | {"model_type": "bert", "braid_sequence": 40},
    "bloom": {"model_type": "bloom", "hidden_size": 96, "n_layer": 3, "n_head": 6, "vocab_size": 301,
              "braid_sequence": 40},
    "gpt2": {"model_type": "gpt2", "n_embd": 96, "n_layer": 3, "n_head": 6, "vocab_size": 301,
             "n_positions": 80},
    "opt": {"model_type": "opt", "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6,
            "ffn_dim": 200, "vocab_size": 301, "max_position_embeddings": 80, "word_embed_proj_dim": 96},
    "llama": GROUPED | {"model_type": "llama"},
    "mistral": GROUPED | {"model_type": "mistral", "sliding_window": 24},
    "phi3": GROUPED | {"model_type": "phi3"},
    "qwen2": GROUPED | {"model_type": "qwen2"},
    "qwen3": GROUPED | {"model_type": "qwen3", "head_dim": 16},
    "mixtral": GROUPED | {"model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 2},
    "swin": {"model_type": "swin", "embed_dim": 24, "depths": [2, 2, 2], "num_heads": [3, 6, 6],
             "image_size": 24, "patch_size": 2, "window_size": 3, "num_labels": 7},
    "t5": {"model_type": "t5", "d_model": 96, "d_kv": 12, "num_layers": 3, "num_heads": 6, "d_ff": 200,
           "vocab_size": 301, "braid_sequence": 48, "braid_decoder_sequence": 20},
    "vit": DECODER | {"model_type": "vit", "image_size": 30, "patch_size": 5, "num_labels": 7},
}


def verbs(name, args):
    """(column, arguments) in the order they run; later ones read what earlier ones wrote."""
    device = ["--device", args.device]
    ranks = ["--ranks", str(args.ranks)] if args.ranks > 1 else []
    precision = ["--precision", args.precision]
    batch = str(6 * args.ranks)
    model = ["--model", f"{name}.json"]
    plan = ["plan", *model, "--cluster", "cluster.json", "--devices", str(args.ranks), "--global-batch", batch,
            *precision, "--threads", "1"]
    run = [*device, *ranks]
    yield "plan", [*plan, "--out", "plan.json"]
    yield "json", [*plan, "--format", "json"]
    yield "check", ["check", "plan.json", *model]
    yield "explain", ["explain", "plan.json", "--global-batch", str(2 * int(batch))]
    yield "simulate", ["simulate", "plan.json", "--contention", "--trace", "trace.json"]
    yield "dry run", ["train", "plan.json", "--dry-run"]
    yield "train", ["train", "plan.json", "--steps", "4", "--metrics", "run", "--trace", "steps.json", *run]
    if args.ranks == 1:
        yield "bench", ["bench", "step", *model, "--global-batch", "5", "--steps", "2", *precision, *device]
    yield "profile", ["profile", "model", *model, "--global-batch", batch, "--out", "profile.json",
                      "--hardware", "hardware.json", *precision, *run]
    yield "measured", ["plan", "--profile", "profile.json", "--global-batch", batch, "--out", "measured.json"]
    yield "compare", ["compare", "--profile", "profile.json", "--global-batch", batch, "--steps", "2",
                      "--algorithms", "dp,exact", "--out", "results.json", *run]
    yield "calibrate", ["calibrate", "--profile", "profile.json", "--comparison", "results.json", "--out", "better.json"]
    yield "auto", ["auto", *model, "--global-batch", batch, "--steps", "3", "--cache", "../cache", *precision, *run]


def run(program, arguments, folder, limit):
    begin = time.monotonic()
    try:
        done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=limit,
                              check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
        return done.returncode, done.stderr, time.monotonic() - begin
    except subprocess.TimeoutExpired:
        return "time", f"no end after {limit} s", time.monotonic() - begin


def family(name, args, top, hardware):
    folder = top / name
    folder.mkdir()
    (folder / f"{name}.json").write_text(json.dumps(FAMILIES[name]))
    (folder / "cluster.json").write_text(pathlib.Path(args.cluster).read_text())
    (folder / "hardware.json").write_bytes(hardware.read_bytes())
    cells, failures = [], []
    for column, arguments in verbs(name, args):
        status, error, seconds = run(args.program, arguments, folder, args.limit)
        cells.append((column, f"{seconds:.1f}" if status == 0 else f"[{status}]"))
        if status != 0:
            failures.append(f"{name}: braid {' '.join(arguments)}\n  {error.strip()[-1500:]}")
    return name, cells, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=[], help="of these only")
    parser.add_argument("--program", default="build/braid")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--cluster", default="configs/examples/four-threads.json")
    parser.add_argument("--jobs", type=int, default=1, help="families at a time")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one command")
    args = parser.parse_args()
    args.program = str(pathlib.Path(args.program).resolve())
    unknown = set(args.families) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}; known: {', '.join(FAMILIES)}")

    with tempfile.TemporaryDirectory() as scratch:
        top = pathlib.Path(scratch)
        hardware = top / "hardware.json"
        ranks = ["--ranks", str(args.ranks)] if args.ranks > 1 else []
        status, error, seconds = run(
            args.program, ["profile", "hardware", "--out", str(hardware), "--max-message", "1MiB", "--precision",
                           args.precision, "--device", args.device, *ranks], top, args.limit)
        if status != 0:
            sys.exit(f"profile hardware ended with {status}:\n{error}")
        print(f"hardware profiled in {seconds:.1f} s", flush=True)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(lambda name: family(name, args, top, hardware), args.families or FAMILIES))

    columns = [column for column, _ in results[0][1]]
    print("          " + "".join(f"{column:>10}" for column in columns))
    for name, cells, _ in results:
        print(f"{name:<10}" + "".join(f"{cell:>10}" for _, cell in cells))
    failures = [failure for _, _, found in results for failure in found]
    for failure in failures:
        print(failure)
    print(f"{sum(len(cells) for _, cells, _ in results)} runs, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
