#!/usr/bin/env python3
"""Holds plans against runs on GPUs: time of a step and the allocator's peak, beside the prediction.

  benchmarks/gpu_memory.py                                  one GPU
  benchmarks/gpu_memory.py --launch 'mpirun -n 4' --ranks 4    four ranks, one GPU each

Makes each plan of the table below with `braid plan`, runs it for a few steps with `braid train
--backend nccl`, and prints a row a stage. Exits with 1 if an allocator's peak is further from its
prediction than --tolerance. Needs a build with CUDA.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "configs" / "examples"
MIB = 1 << 20

# name, ranks, model, global batch, further flags of `braid plan`
CASES = [
    ("roomy", 1, EXAMPLES / "llama-1b.json", 8, []),
    ("tight", 1, EXAMPLES / "llama-1b.json", 8, ["--memory", "30GiB"]),
    ("gpt2-xl", 1, ROOT / "configs/models/gpt2-xl.json", 16, []),
    ("mixture", 1, EXAMPLES / "mixtral-0.5b.json", 16, []),
    ("exact", 4, EXAMPLES / "llama-1b.json", 8, []),
    ("tight", 4, EXAMPLES / "llama-1b.json", 8, ["--memory", "10GiB"]),
    ("tighter", 4, EXAMPLES / "llama-1b.json", 8, ["--memory", "9GiB"]),
    ("zero3", 4, EXAMPLES / "llama-1b.json", 8, ["--algorithm", "zero3"]),
    ("tp", 4, EXAMPLES / "llama-1b.json", 8, ["--algorithm", "tp"]),
    ("pp", 4, EXAMPLES / "llama-1b.json", 8, ["--algorithm", "pp"]),
    ("dp", 4, EXAMPLES / "llama-1b.json", 8, ["--algorithm", "dp"]),
    ("mixture", 4, EXAMPLES / "mixtral-0.5b.json", 16, ["--memory", "12GiB"]),
]
CLUSTERS = {1: EXAMPLES / "h200.json", 4: EXAMPLES / "h200-quarters.json"}


def run(command, limit):
    """The command's output; None, with a line that says why, where it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        print(f"no end within {limit} s: {shlex.join(command)}")
        return None
    if done.returncode != 0:
        print(f"status {done.returncode}: {shlex.join(command)}\n{done.stderr.strip()[-800:]}")
        return None
    return done.stdout


def measure(case, arguments, folder):
    """Plans and runs one case; yields (stage, step, planned step, peak, planned peak)."""
    name, ranks, model, batch, flags = case
    plan, report = folder / f"{name}.json", folder / f"{name}.report.json"
    braid = str(arguments.braid)
    made = run([braid, "plan", "--model", str(model), "--cluster", str(CLUSTERS[ranks]),
                "--global-batch", str(batch), "--out", str(plan), *flags], 120)
    launch = shlex.split(arguments.launch)
    ran = made and run([*launch, braid, "train", "--plan", str(plan), "--backend", "nccl",
                        "--steps", str(arguments.steps), "--timeout", "60",
                        "--out", str(report)], arguments.limit)
    if not ran:
        return
    answer = json.loads(report.read_text(encoding="utf-8"))
    for stage in answer["stages"]:
        yield (stage["stage"], answer["step_seconds"], answer["planned_step_seconds"],
               stage["held_bytes"]["allocator"], stage["planned_bytes"]["allocator"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", type=Path, default=ROOT / "build/braid")
    parser.add_argument("--launch", default="", help="what starts the ranks, for example mpirun")
    parser.add_argument("--ranks", type=int, default=1, choices=sorted(CLUSTERS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--limit", type=int, default=120, help="seconds for a run")
    parser.add_argument("--tolerance", type=float, default=0.02)
    arguments = parser.parse_args()

    cases = [case for case in CASES if case[1] == arguments.ranks]
    print("| plan | stage | step | planned | allocator's peak | planned | planned / peak |")
    print("|---|---|---|---|---|---|---|")
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            rows = list(measure(case, arguments, Path(folder)))
            failures += not rows
            for stage, step, planned_step, peak, planned in rows:
                off = planned / peak - 1
                failures += abs(off) > arguments.tolerance
                print(f"| {case[0]} | {stage} | {1e3 * step:.0f} ms | {1e3 * planned_step:.0f} ms "
                      f"| {peak / MIB:,.0f} MiB | {planned / MIB:,.0f} MiB | {off:+.2%} |",
                      flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
