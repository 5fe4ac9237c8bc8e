#!/usr/bin/env python3
"""Whether "more memory" and "more devices" of an answer are exact, with the search as the oracle.

    benchmarks/least_memory.py build/braid                      # all models, 1 to 16 devices
    benchmarks/least_memory.py build/braid --models gpt2 llama3-8b --devices 1 4

For each question that does not fit under --memory, the limit that is said to be enough must find a
plan on devices that have it, and one MiB less none. The devices are those of four clusters, with 10
TiB each. Prints what is wrong and a summary. Status 1: some answer was not exact.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTERS = ["a100-80g-8x8", "h100-2x8", "titan-rtx-2x8", "v100-32g-8x4"]
MIB = 1 << 20


class Oracle:
    def __init__(self, args, folder):
        self.args = args
        self.folder = pathlib.Path(folder)

    def cluster(self, name):
        cluster = json.loads((ROOT / f"configs/clusters/{name}.json").read_text())
        for device in cluster["devices"].values():
            device["memory"] = "10TiB"
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(cluster))
        return path

    def ask(self, model, cluster, devices, memory, *more):
        done = subprocess.run(
            [self.args.braid, "plan", "--model", ROOT / f"configs/models/{model}.json", "--cluster",
             self.cluster(cluster), "--devices", str(devices), "--global-batch",
             str(self.args.global_batch), "--memory", f"{memory}B", "--threads", "1", "--format",
             "json", *more], capture_output=True, text=True, check=False)
        return json.loads(done.stdout)

    def examine(self, model, cluster, devices):
        """What is wrong with the answer; empty: nothing. None: there is nothing to check."""
        answer = self.ask(model, cluster, devices, self.args.memory * MIB)
        if answer["status"] != "infeasible" or answer["infeasible"]["constraint"] != "memory":
            return None
        enough = answer["infeasible"]["enough_memory_bytes"]
        if enough is None:
            return "no memory is enough"
        if self.ask(model, cluster, devices, enough, "--gap", "100000")["status"] != "ok":
            return f"{enough} bytes are not enough"
        if self.ask(model, cluster, devices, enough - MIB, "--gap", "100000")["status"] == "ok":
            return f"{enough} bytes are more than enough"
        return ""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid", type=pathlib.Path, help="the program to ask")
    parser.add_argument("--models", nargs="*", help="default: all in configs/models")
    parser.add_argument("--clusters", nargs="*", default=CLUSTERS)
    parser.add_argument("--devices", nargs="*", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--memory", type=int, default=256, help="MiB that fit nothing")
    args = parser.parse_args()
    models = args.models or sorted(path.stem for path in (ROOT / "configs/models").glob("*.json"))
    checked = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(args, folder)
        for model in models:
            for cluster in args.clusters:
                for devices in args.devices:
                    fault = oracle.examine(model, cluster, devices)
                    if fault is None:
                        continue
                    checked += 1
                    wrong += fault != ""
                    if fault:
                        print(f"{model} on {devices} of {cluster}: {fault}", flush=True)
    print(f"{checked} answers, {checked - wrong} of them exact to one MiB")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
