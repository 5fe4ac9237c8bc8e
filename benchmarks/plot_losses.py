#!/usr/bin/env python3
"""Draws what benchmarks/long_run.sh left, and says how far the runs are apart.

    benchmarks/plot_losses.py OUT PICTURE.svg

Needs matplotlib.
"""

import json
import os
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def smooth(values, width=25):
    return [statistics.mean(values[max(0, i - width + 1):i + 1]) for i in range(len(values))]


def compare(name, ours, theirs):
    both = min(len(ours), len(theirs))
    gaps = [abs(a - b) for a, b in zip(ours, theirs)]
    last = statistics.mean(ours[both - 100:both]) - statistics.mean(theirs[both - 100:both])
    near = next((step for step, gap in enumerate(gaps) if gap > 0.01), both)
    most = max(range(both), key=gaps.__getitem__)
    early = max(range(min(both, 50)), key=gaps.__getitem__)
    print(f"{name}: the first {near} steps within 0.01; of the first 50 at most {gaps[early]:.2g} apart "
          f"(step {early}); all {both} {statistics.mean(gaps):.2g} apart in the mean, {gaps[most]:.2g} at "
          f"most (step {most}); mean of the last 100 {last:+.2g}")


def pace(name, rows, seconds):
    times = sorted(rows[i][seconds] for i in range(10, len(rows)))
    held = [row.get("allocated_bytes") for row in rows if row.get("allocated_bytes")]
    grown = f"; memory {held[2] / 2**30:.2f} to {held[-1] / 2**30:.2f} GiB" if len(held) > 2 else ""
    print(f"{name}: {1e3 * statistics.median(times):.1f} ms a step, 99% below "
          f"{1e3 * times[int(0.99 * len(times))]:.1f} ms, the slowest {1e3 * times[-1]:.1f} ms{grown}")


def main():
    folder, picture = sys.argv[1:]
    braid, torch = read(f"{folder}/bf16/metrics.jsonl"), read(f"{folder}/torch.jsonl")
    losses = {"PyTorch": [row["loss"] for row in torch], "Braid": [row["loss"] for row in braid]}
    compare("Braid against PyTorch", losses["Braid"], losses["PyTorch"])
    pace("Braid", braid, "seconds")
    pace("PyTorch", torch, "seconds")
    figure, (all_steps, apart) = plt.subplots(1, 2, figsize=(11, 4))
    for (name, values), colour in zip(losses.items(), ("#d55e00", "#0072b2")):
        all_steps.plot(smooth(values), label=name, color=colour, linewidth=1)
    all_steps.set(xlabel="step", ylabel="loss, mean of 25 steps", yscale="log")
    all_steps.legend()
    apart.plot([a - b for a, b in zip(losses["Braid"], losses["PyTorch"])], color="#0072b2",
               linewidth=0.6, label="Braid − PyTorch")
    if os.path.exists(f"{folder}/fp8/metrics.jsonl"):
        fp8 = [row["loss"] for row in read(f"{folder}/fp8/metrics.jsonl")]
        compare("fp8 against bf16", fp8, losses["Braid"])
        pace("fp8", read(f"{folder}/fp8/metrics.jsonl"), "seconds")
        apart.plot([a - b for a, b in zip(fp8, losses["Braid"])], color="#009e73", linewidth=0.6,
                   label="fp8 − bf16, both Braid")
    apart.axhline(0, color="black", linewidth=0.5)
    apart.set(xlabel="step", ylabel="difference of losses")
    apart.legend()
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main()
