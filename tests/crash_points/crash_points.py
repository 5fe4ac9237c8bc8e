#!/usr/bin/env python3
"""Fails or kills a run at every system call of its saves: crash_points.py PROGRAM LIBRARY [--points N].

Whatever happens at whichever call, the run that starts next goes on from a whole checkpoint, ends with
the losses of a run that nothing happened to, and leaves nothing unfinished behind.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOW = ("kill", "enospc", "eio", "short")
STEPS = 4


class Run:
    """The same training run again and again, in one folder."""

    def __init__(self, program, library, folder):
        self.program, self.library, self.folder = program, library, Path(folder)
        self.plan = self.folder / "plan.json"
        subprocess.run(
            [program, "plan", "--model", ROOT / "configs/examples/tiny-llama.json", "--cluster",
             ROOT / "configs/clusters/a100-80g-8.json", "--devices", "2", "--global-batch", "2",
             "--seq", "16", "--precision", "fp32", "--pp", "1", "--out", self.plan],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def train(self, name, environment):
        """Status of a run that saves each step and keeps two."""
        run = self.folder / name
        done = subprocess.run(
            [self.program, "train", self.plan, "--steps", str(STEPS), "--save", run / "saved",
             "--save-every", "1", "--keep", "2", "--resume", "--metrics", run / "metrics"],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, capture_output=True,
            text=True, timeout=120)
        return done.returncode, done.stderr

    def injected(self, name, at, how, count=None):
        below = (self.folder / name / "saved").resolve()
        return self.train(name, {"LD_PRELOAD": str(self.library), "FAIL_BELOW": str(below),
                                 "FAIL_AT": str(at), "FAIL_HOW": how,
                                 **({"FAIL_COUNT": str(count)} if count else {})})

    def losses(self, name):
        lines = (self.folder / name / "metrics/metrics.jsonl").read_text().splitlines()
        return [(line["step"], line["loss"], line["gradient_norm"]) for line in map(json.loads, lines)]

    def leftovers(self, name):
        """Folders of steps without a checkpoint.json, and temporary files."""
        saved = self.folder / name / "saved"
        unfinished = [f.name for f in saved.glob("step-*") if not (f / "checkpoint.json").exists()]
        return unfinished + [str(f) for f in saved.rglob(".braid-*")]


def fault(run, number, at, how):
    """What goes wrong at one point, or None."""
    name = f"run-{number}"
    status, error = run.injected(name, at, how)
    expected = (-9,) if how == "kill" else (0, 2)
    if status not in expected + (0,):
        return f"status {status}: {error[-400:]}"
    whole = [f.parent.name for f in (run.folder / name / "saved").glob("step-*/checkpoint.json")]
    for step in whole:
        checked = subprocess.run([run.program, "checkpoint", "verify", run.folder / name / "saved" / step],
                                 capture_output=True, text=True)
        if checked.returncode != 0:
            return f"{step} has a checkpoint.json and is damaged: {checked.stderr}"
    status, error = run.train(name, {})
    if status != 0:
        return f"the next start ends with status {status}: {error[-400:]}"
    if run.losses(name) != run.losses("undisturbed"):
        return f"losses differ: {run.losses(name)}"
    if left := run.leftovers(name):
        return f"left behind: {left}"
    subprocess.run(["rm", "-rf", run.folder / name], check=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("--points", type=int, default=0, help="so many of all, at random; 0: all")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(arguments.program, arguments.library, folder)
        count = Path(folder) / "count"
        status, error = run.injected("undisturbed", 0, "none", count)
        if status != 0:
            sys.exit(f"the undisturbed run ends with status {status}: {error}")
        calls = int(count.read_text())
        points = [(at, how) for at in range(1, calls + 1) for how in HOW]
        chosen = random.Random(1).sample(points, min(arguments.points, len(points))) or points
        faults = 0
        for number, (at, how) in enumerate(chosen):
            if what := fault(run, number, at, how):
                faults += 1
                print(f"call {at} of {calls}, {how}: {what}", flush=True)
        print(f"{len(chosen)} points of {len(points)} ({calls} calls), {faults} faults")
        sys.exit(faults > 0)


if __name__ == "__main__":
    main()
