#!/usr/bin/env python3
"""Prices the plans of measured comparisons anew and holds the time of a step against the run.

    benchmarks/time_accuracy.py FOLDER... [--profile FILE] [--braid build/braid]

A FOLDER is what benchmarks/accuracy.sh leaves: results.json beside its profile.json. With --profile another
one prices: what `braid calibrate` wrote, which is calibrated.json in a run on CPUs. Plans that an algorithm found and uniform ones are
counted apart: a calibration by the first has not seen the second.
"""

import argparse
import json
import pathlib

from memory_accuracy import priced


def spearman(left, right):
    def ranks(values):
        order = sorted(range(len(values)), key=values.__getitem__)
        return {place: rank for rank, place in enumerate(order)}

    a, b, n = ranks(left), ranks(right), len(left)
    return 1 - 6 * sum((a[i] - b[i]) ** 2 for i in range(n)) / (n * (n * n - 1)) if n > 1 else 1.0


def tell(name, rows):
    """rows: (measured, predicted then, predicted now)"""
    if not rows:
        return
    for when, column in (("then", 1), ("now", 2)):
        error = sum(abs(row[column] / row[0] - 1) for row in rows) / len(rows)
        order = spearman([row[0] for row in rows], [row[column] for row in rows])
        print(f"{name}, {len(rows)} plans, {when}: error {error:.1%}, Spearman {order:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--braid", default="build/braid")
    options = parser.parse_args()
    found, uniform = [], []
    for folder in options.folders:
        profile = options.profile or folder / "profile.json"
        for row in json.loads((folder / "results.json").read_text())["plans"]:
            if "report" not in row:
                continue
            report = row["report"]
            measured, then = report["step_seconds"], report["planned_step_seconds"]
            now = priced(options.braid, report["plan"], profile)["iteration"]
            print(f"{row['layout']}: measured {measured:.4f} s, then {then / measured - 1:+.1%}, "
                  f"now {now / measured - 1:+.1%}")
            (found if row["names"] else uniform).append((measured, then, now))
    tell("found by algorithms", found)
    tell("uniform", uniform)
    tell("all", found + uniform)


if __name__ == "__main__":
    main()
