#!/usr/bin/env python3
"""Galvatron-BMW's kind of cases: unequal layers, tight memory. Prints the table of docs/bmw-cases.md.

Each case is planned with even cuts, with BMW's walk (both 1F1B), and exactly (1F1B, and with every
schedule); times are predictions of the event simulator. Fails where BMW is slower than even cuts or exact
slower than BMW.
"""

import argparse
import json
import subprocess
import sys

CASES = [  # model, cluster, memory, global batch
    ("bert-huge-32", "titan-rtx-1x8", "8GB", 64),
    ("bert-huge-48", "titan-rtx-2x8", "8GB", 128),
    ("bert-huge-48", "titan-rtx-2x8", "16GB", 128),
    ("bert-huge-48", "titan-rtx-8x8", "12GB", 256),
    ("t5-512-4-32", "titan-rtx-1x8", "8GB", 64),
    ("t5-512-4-32", "titan-rtx-2x8", "8GB", 128),
    ("t5-512-4-48", "titan-rtx-2x8", "12GB", 128),
    ("t5-512-4-48", "titan-rtx-8x8", "8GB", 256),
    ("t5-large-48", "titan-rtx-2x8", "12GB", 128),
    ("vit-huge-32", "titan-rtx-2x8", "8GB", 128),
    ("vit-huge-48", "titan-rtx-8x8", "8GB", 512),
    ("swin-huge-32", "titan-rtx-2x8", "8GB", 128),
    ("swin-huge-48", "titan-rtx-2x8", "12GB", 128),
    ("swin-huge-48", "titan-rtx-8x8", "20GB", 512),
]
RUNS = [
    ("even", ["--algorithm", "bmw", "--even-cuts"]),
    ("bmw", ["--algorithm", "bmw"]),
    ("exact", ["--algorithm", "exact", "--schedule", "1f1b"]),
    ("exact, any schedule", ["--algorithm", "exact"]),
]


def plan(braid, case, extra, configs):
    model, cluster, memory, batch = case
    command = [braid, "plan", "--model", f"{configs}/models/{model}.json", "--cluster",
               f"{configs}/clusters/{cluster}.json", "--memory", memory, "--global-batch", str(batch),
               "--no-bound", "--threads", "1", "--format", "json"] + extra
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    answer = json.loads(done.stdout)
    return answer if answer["status"] == "ok" else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--braid", default="build/braid")
    parser.add_argument("--configs", default="configs")
    parser.add_argument("--only", default="", help="cases whose model and cluster contain this text")
    args = parser.parse_args()
    print("| model | GPUs | memory | batch | even cuts | BMW | exact, 1F1B | exact, any schedule | "
          "BMW's stages | layers of each | α_t | α_m |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    failures = []
    for case in CASES:
        if args.only not in f"{case[0]} {case[1]}":
            continue
        answers = [plan(args.braid, case, extra, args.configs) for _, extra in RUNS]
        rates = [a["predicted"]["samples_per_second"] if a else None for a in answers]
        for (slow, a), (fast, b) in zip(zip(RUNS, rates), zip(RUNS[1:], rates[1:])):
            if a and (not b or b < a * (1 - 1e-9)):
                failures.append(f"{case}: {fast[0]} is behind {slow[0]} ({b} against {a} samples/s)")
        model, cluster, memory, batch = case
        cells = [f"{r:.2f}" if r else "none" for r in rates]
        shape = ["–"] * 4
        if answers[1]:
            stages = answers[1]["plan"]["stages"]
            counts = [sum(end - begin for begin, end in s["chunks"]) for s in stages]
            balance = answers[1]["balance"]
            shape = [str(len(stages)), "-".join(map(str, counts)),
                     f"{balance['time']:.3f}", f"{balance['memory']:.3f}"]
        nodes = int(cluster.rsplit("-", 1)[1].split("x")[0])
        print(f"| {model} | {8 * nodes} | {memory} | {batch} | " + " | ".join(cells + shape) + " |", flush=True)
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
