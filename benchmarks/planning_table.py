#!/usr/bin/env python3
"""Every strategy of the papers on every model of the papers. Prints the tables of docs/planning-table.md.

For each model, cluster and memory limit every algorithm makes one plan; what counts is its predicted samples
per second. Answers are kept in a file, so that a run that was cut off goes on where it was. Fails where the
exact search is behind another algorithm or loses by more memory, and where galvatron or bmw is behind a plan
that its space contains. Squares of devices (PrimePar) are left out: the papers' spaces have none.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

MODELS = ["bert-huge-32", "bert-huge-48", "vit-huge-32", "vit-huge-48", "t5-large-32", "t5-large-48",
          "t5-512-4-32", "t5-512-4-48", "swin-huge-32", "swin-huge-48"]
SINGLE = ["dp", "zero3", "tp", "pp"]
ALGORITHMS = SINGLE + ["megatron-3d", "galvatron", "bmw", "exact"]
CONTAINS = {  # what an algorithm could choose too
    "galvatron": SINGLE,
    "bmw": SINGLE + ["galvatron"],
    "exact": ALGORITHMS[:-1],
}
CLUSTERS = [  # cluster, GPUs, memory limits in GB, samples a GPU
    ("titan-rtx-1x8", 8, [8, 12, 16, 20], 32),
    ("titan-rtx-2x8", 16, [8, 16], 32),
    ("titan-rtx-8x8", 64, [8, 16], 8),
]
# Galvatron on 8 GPUs at 8, 12, 16 and 20 GB, recomputed from the constants that its paper publishes.
RECOMPUTED = {
    "bert-huge-32": [7.94, 11.77, 15.06, 17.46],
    "bert-huge-48": [None, 6.61, 7.66, 8.94],
    "vit-huge-32": [37.7, 53.3, 67.5, 75.4],
    "vit-huge-48": [19.9, 26.4, 33.6, 40.5],
    "swin-huge-32": [34.1, 44.8, 56.6, 63.8],
    "swin-huge-48": [19.2, 24.9, 30.2, 35.8],
    "t5-large-32": [10.1, 14.3, 16.6, 19.1],
    "t5-large-48": [None, 7.3, 8.6, 11.0],
}


class Answers:
    """Predicted samples per second by cell: a number, or the word for why there is none."""

    def __init__(self, braid, configs, precision, file):
        self.braid, self.configs, self.precision, self.file = braid, configs, precision, file
        self.known = json.loads(file.read_text()) if file and file.exists() else {}

    def of(self, model, cluster, memory, batch, algorithm):
        key = f"{model} {cluster} {memory}GB {batch} {self.precision} {algorithm}"
        if key not in self.known:
            self.known[key] = self.plan(model, cluster, memory, batch, algorithm)
            self.save()
        return self.known[key]

    def plan(self, model, cluster, memory, batch, algorithm):
        command = [self.braid, "plan", "--model", f"{self.configs}/models/{model}.json", "--cluster",
                   f"{self.configs}/clusters/{cluster}.json", "--memory", f"{memory}GB", "--global-batch",
                   str(batch), "--precision", self.precision, "--algorithm", algorithm, "--no-bound",
                   "--no-primepar", "--alternatives", "0", "--threads", "1", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        answer = json.loads(done.stdout)
        if answer["status"] == "ok":
            return answer["predicted"]["samples_per_second"]
        return "OOM" if answer["infeasible"]["constraint"] == "memory" else "–"

    def save(self):
        if not self.file:
            return
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps(self.known, indent=1, ensure_ascii=False) + "\n")
        os.replace(beside, self.file)


def behind(rate, other):
    """Whether `rate` is less than `other`, where a word counts as none."""
    return not isinstance(other, str) and (isinstance(rate, str) or rate < other * (1 - 1e-9))


def row_of(rates):
    """Markdown cells of one line: every algorithm, and the gain over single strategies."""
    cells = [rate if isinstance(rate, str) else f"{rate:.1f}" for rate in rates.values()]
    exact = rates["exact"]
    single = [rates[a] for a in SINGLE if not isinstance(rates[a], str)]
    return cells + ["–" if isinstance(exact, str) or not single else f"{exact / max(single) - 1:+.0%}"]


def recomputed(model, memory):
    figures = RECOMPUTED.get(model)
    if not figures:
        return "–"
    value = figures[[8, 12, 16, 20].index(memory)]
    return "OOM" if value is None else str(value)


def table(answers, models, cluster, memories, batch, failures):
    title, gpus = cluster
    print(f"\n### {gpus} GPUs (`{title}`), batch {batch}\n")
    head = ["model", "memory"] + ALGORITHMS + ["exact over the best single"]
    head += ["Galvatron, recomputed"] if gpus == 8 else []
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for model in models:
        before = 0.0
        for memory in memories:
            rates = {a: answers.of(model, title, memory, batch, a) for a in ALGORITHMS}
            name = f"{model} on {gpus} GPUs of {memory} GB"
            for algorithm, others in CONTAINS.items():
                failures += [f"{name}: {algorithm} is behind {other} ({rates[algorithm]} against "
                             f"{rates[other]} samples/s)"
                             for other in others if behind(rates[algorithm], rates[other])]
            cells = row_of(rates) + ([recomputed(model, memory)] if gpus == 8 else [])
            print(f"| {model} | {memory} GB | " + " | ".join(cells) + " |", flush=True)
            exact = rates["exact"]
            if behind(exact, before):
                failures.append(f"{name}: more memory gave a slower plan ({before}, then {exact})")
            before = before if isinstance(exact, str) else exact


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--braid", default="build/braid")
    parser.add_argument("--configs", default="configs")
    parser.add_argument("--precision", default="fp32", help="what the papers train in: fp32")
    parser.add_argument("--answers", type=pathlib.Path, help="file that keeps answers between runs")
    parser.add_argument("--gpus", type=int, action="append", help="clusters of this size only; may be repeated")
    parser.add_argument("--only", default="", help="models whose name contains this text")
    args = parser.parse_args()
    answers = Answers(args.braid, args.configs, args.precision, args.answers)
    models = [m for m in MODELS if args.only in m]
    failures = []
    for name, gpus, memories, samples in CLUSTERS:
        if args.gpus and gpus not in args.gpus:
            continue
        table(answers, models, (name, gpus), memories, gpus * samples, failures)
    print()
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
