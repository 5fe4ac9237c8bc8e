#!/usr/bin/env python3
"""Prices the plans of measured comparisons anew and holds the peak of memory against the run, stage by stage.

    benchmarks/memory_accuracy.py FOLDER... [--braid build/braid]

A FOLDER is what benchmarks/accuracy.sh leaves: results.json beside its profile.json. Prints what was
predicted when the plans ran, and what this build predicts. Fails where it is more than 1% too low or 3% too
high.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

LOWEST, HIGHEST = -0.01, 0.03
MIB = 2**20


def priced(braid, plan, profile):
    """What this build predicts for the plan, whatever limit it was made for."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan.json"
        file.write_text(json.dumps(plan | {"memory_limit": 0}))
        command = [braid, "explain", str(file), "--profile", str(profile), "--format", "json"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode not in (0, 3):  # 3: priced, and too large
            sys.exit(answer.stderr)
        said = json.loads(answer.stdout)
        return said.get("plan", said)["prediction"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--braid", default="build/braid")
    options = parser.parse_args()
    errors = []
    for folder in options.folders:
        for row in json.loads((folder / "results.json").read_text())["plans"]:
            if "report" not in row:
                continue
            report = row["report"]
            print(row["layout"])
            stages = priced(options.braid, report["plan"], folder / "profile.json")["stages"]
            for number, (now, run) in enumerate(zip(stages, report["stages"])):
                held = run["held_bytes"].get("allocator")
                if held is None:
                    continue
                before = run["planned_bytes"]["allocator"] / held - 1
                error = (now["peak"] - now["overhead"] - now["slack"]) / held - 1
                errors.append(error)
                print(f"  stage {number}: measured {held / MIB:8.1f} MiB, then {before:+7.2%}, now {error:+7.2%}")
    if not errors:
        sys.exit("no stage of these runs has a measured peak")
    print(f"{len(errors)} stages, from {min(errors):+.2%} to {max(errors):+.2%}")
    return 0 if LOWEST <= min(errors) and max(errors) <= HIGHEST else 1


if __name__ == "__main__":
    sys.exit(main())
