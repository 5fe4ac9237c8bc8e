#!/usr/bin/env python3
"""Whether the exact search is ever behind another algorithm, over shipped models and clusters.

    benchmarks/never_behind.py build/braid                       # models x six clusters
    benchmarks/never_behind.py build/braid --case qwen2.5-7b rtx4090-8 --case t5-large-32 h100-128x8

Asks the exact search (each at most --limit seconds), and where its gap is at least --gap percent
every other algorithm, without the search that bounds its plan. Prints a line for each such case and
a summary. Status 1: some algorithm found a faster plan.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTERS = ["a100-80g-8", "rtx4090-8", "h100-16x8", "v100-32g-8x4", "a100-v100-mixed", "h100-128x8"]
OTHERS = ["megatron-3d", "dp", "zero3", "tp", "pp", "bmw", "galvatron"]
ROUNDING = 1e-9  # of the same sums in another order


def ask(args, case, *more):
    """The answer to one question; None where there is no plan."""
    model, cluster = case
    done = subprocess.run(
        [args.braid, "plan", "--model", ROOT / f"configs/models/{model}.json", "--cluster",
         ROOT / f"configs/clusters/{cluster}.json", "--global-batch", str(args.global_batch),
         "--threads", "1", "--format", "json", "--limit", str(args.limit), *more],
        capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    return answer if answer["status"] == "ok" else None


def examine(args, case):
    exact = ask(args, case)
    if exact is None:
        return {"case": case, "status": "no plan"}
    gap = exact["search"]["gap"]
    row = {"case": case, "gap": gap, "seconds": exact["predicted"]["iteration_seconds"],
           "ended_by": exact["search"]["ended_by"], "others": {}}
    if gap is not None and gap < args.gap / 100:
        return row | {"status": "proven"}
    for algorithm in OTHERS:
        other = ask(args, case, "--algorithm", algorithm, "--no-bound")
        if other is not None:
            row["others"][algorithm] = other["predicted"]["iteration_seconds"]
    behind = [a for a, seconds in row["others"].items() if seconds < row["seconds"] * (1 - ROUNDING)]
    return row | {"status": "behind " + ", ".join(behind) if behind else "first"}


def describe(row):
    words = f"{row['case'][0]} on {row['case'][1]}: {row['status']}"
    if "gap" not in row:
        return words
    gap = "not known" if row["gap"] is None else f"{row['gap']:.1%}"
    words += f", {row['seconds']:.6g} s, gap {gap}, ended by {row['ended_by']}"
    if row["others"]:
        name, seconds = min(row["others"].items(), key=lambda item: item[1])
        words += f"; best other {name} {seconds / row['seconds'] - 1:+.3%}"
    return words


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid", type=pathlib.Path, help="the program to ask")
    parser.add_argument("--case", nargs=2, action="append", metavar=("MODEL", "CLUSTER"))
    parser.add_argument("--global-batch", type=int, default=256)
    parser.add_argument("--gap", type=float, default=2, help="percent from which others are asked")
    parser.add_argument("--limit", type=float, default=30, help="seconds of one search")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    args = parser.parse_args()
    models = sorted(path.stem for path in (ROOT / "configs/models").glob("*.json"))
    cases = args.case or [(model, cluster) for model in models for cluster in CLUSTERS]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(lambda case: examine(args, case), cases):
            rows.append(row)
            print(describe(row), flush=True)
    asked = [row for row in rows if row["status"].startswith(("first", "behind"))]
    behind = [row for row in asked if row["status"] != "first"]
    print(f"{len(rows)} questions, {len(asked)} of them with a gap of {args.gap:g}% or more: "
          f"{len(behind)} where another algorithm is faster")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
