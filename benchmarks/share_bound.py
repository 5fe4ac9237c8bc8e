#!/usr/bin/env python3
"""What a share of a GPU allows a plan, beside what it took.

    benchmarks/share_bound.py WHOLE.json TAKEN FOLDER...

WHOLE.json is `braid bench step --out` of the same model and batch on the whole GPU. Each FOLDER is the
--metrics of a `braid train` whose plan was priced with a profile of this machine. TAKEN is the share of a
rank's multiprocessors that a collective occupies (8 of 33: 0.24).

A rank with 1/n of the GPU and 1/n of the work takes as long as the whole. So the bound is

    compute   the whole GPU's step without its update
  + update    the whole GPU's, times how often the plan does it (plain data parallelism: on every rank)
  + taken     TAKEN of the time that the plan's bytes need at the bandwidth that was measured, all of it
              beside compute
  + bubble    of the schedule, as planned
"""

import json
import sys

WIRE = ("tensor", "context", "expert", "gather", "reduce", "redistribute", "transfer")
UPDATE = ("adamw", "gradient norm")


def read(path):
    with open(path) as file:
        return json.load(file)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    whole, taken = read(sys.argv[1]), float(sys.argv[2])
    update = sum(o["seconds"] for o in whole["operators"] if o["name"] in UPDATE)
    compute = whole["seconds"] - update
    print("| plan | compute | update | bytes at bandwidth | bubble | bound | measured | over it |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in sys.argv[3:]:
        report = read(f"{folder}/report.json")
        stages = report["stages"]
        devices = sum(n["count"] * n["devices"] for n in report["plan"]["cluster"]["nodes"])
        ranks = devices / len(stages)
        held = sum(ranks * s["held_bytes"]["optimizer"] for s in stages)
        # Ten bytes a parameter: two moments, and what a bf16 weight lacks of its master.
        times = held / (10 * whole["parameters"])
        busiest = max(stages, key=lambda s: s["predicted"]["compute"])["predicted"]
        wire = sum(busiest[k]["exposed"] + busiest[k]["hidden"] for k in WIRE)
        bubble = busiest["bubble"]
        bound = max(compute + update * times + taken * wire + bubble, wire)
        step = report["step_seconds"]
        cells = [compute, update * times, wire, bubble, bound, step]
        print(f"| {folder.rstrip('/').split('/')[-1]} | " + " | ".join(f"{1e3 * c:.1f} ms" for c in cells) +
              f" | {100 * (step / bound - 1):+.0f}% |")


if __name__ == "__main__":
    main()
