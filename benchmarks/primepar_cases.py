#!/usr/bin/env python3
"""PrimePar's own cases on its own cluster: primepar_cases.py BRAID. Prints the tables of docs/primepar.md.

Six models on 4, 8, 16 and 32 V100s: predicted speed and memory against the fastest Megatron plan, beside what
the paper measured; the same by batch and by network; 3D parallelism on 32; how long each search took. One set
of assumptions holds for all cases: fp32, 8 samples of 2048 tokens, no price on memory. Fails where a search
takes longer than the paper's did, or the pair P+/P- is slower than Megatron, whose plans its space holds.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

GPUS = [4, 8, 16, 32]
MODELS = [  # name, file, the paper's (speed, memory in %) on 4, 8, 16 and 32 GPUs, the paper's 3D speed
    ("OPT 6.7B", "opt-6.7b", [(1.16, 89), (1.18, 90), (1.16, 93), (1.20, 93)], "≈ 1.01"),
    ("OPT 175B", "opt-175b", [(1.11, 92), (1.35, 80), (1.38, 80), (1.39, 79)], "1.46"),
    ("Llama2 7B", "llama2-7b", [(1.16, 90), (1.19, 91), (1.20, 93), (1.21, 92)], "≈ 1.01"),
    ("Llama2 70B", "llama2-70b", [(1.15, 91), (1.21, 88), (1.24, 91), (1.26, 89)], "1.27"),
    ("BLOOM 7B1", "bloom-7b1", [(1.15, 89), (1.18, 90), (1.18, 93), (1.19, 92)], "≈ 1.01"),
    ("BLOOM 176B", "bloom-176b", [(1.11, 92), (1.43, 78), (1.68, 69), (1.60, 68)], "1.40"),
]
PAPER_MS = {"OPT": [85, 87, 171, 5357], "Llama2": [87, 89, 186, 6070], "BLOOM": [85, 80, 166, 4153]}
VARIANTS = ["paper", "plus_minus"]
DEVICE_MEMORY = 32 * 2**30
GLOBAL_BATCHES = [8, 64]  # samples of an iteration in the 3D comparison


class Runner:
    """Runs `braid primepar`, each question once."""

    def __init__(self, braid, configs, scratch):
        self.braid, self.configs, self.scratch, self.cache = braid, configs, scratch, {}

    def slower_network(self, divisor):
        """The paper's cluster with a part of its network's bandwidth."""
        cluster = json.loads(self.cluster("v100-32g-8x4").read_text(encoding="utf-8"))
        cluster["network"]["bandwidth"] = 3.125e9 / divisor
        (self.scratch / f"slower-{divisor}.json").write_text(json.dumps(cluster), encoding="utf-8")
        return f"slower-{divisor}"

    def cluster(self, name):
        mine = self.scratch / f"{name}.json"
        return mine if mine.exists() else Path(self.configs) / "clusters" / f"{name}.json"

    def __call__(self, model, devices, variant, batch=8, accumulate=1, cluster="v100-32g-8x4", *flags):
        key = (model, devices, variant, batch, accumulate, cluster, flags)
        if key not in self.cache:
            command = [self.braid, "primepar", "--model", f"{self.configs}/models/{model}.json", "--cluster",
                       str(self.cluster(cluster)), "--devices", str(devices), "--micro-batch",
                       str(batch), "--accumulate", str(accumulate), "--seq", "2048", "--precision", "fp32",
                       "--variant", variant, "--format", "json", *flags]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}\n{done.stderr}")
            self.cache[key] = json.loads(done.stdout)
        return self.cache[key]


def memory(layer, layers, in_flight=1):
    return layers * (layer["states_bytes"] + in_flight * layer["stash_bytes"]) + layer["workspace_bytes"]


def seconds(layer):
    return layer["seconds"]


def megatron(answer):
    return [s for s in answer["schemes"] if s["scheme"] == "Megatron"]


def unlimited(run, model, gpus, variant):
    """Speed and memory against the fastest Megatron, whatever memory takes."""
    answer = run(model, gpus, variant)
    best = min(megatron(answer), key=lambda s: seconds(s["layer"]))
    layers = answer["layers"]
    return (seconds(best["layer"]) / seconds(answer["layer"]),
            memory(answer["layer"], layers) / memory(best["layer"], layers), best)


def within_memory(run, model, gpus, variant):
    """The same where both must fit into 32 GiB, with as many layers as some Megatron plan can hold."""
    answer = run(model, gpus, variant, 8, 1, "v100-32g-8x4", "--pareto")
    plans = megatron(answer)
    layers = answer["layers"]
    while layers > 1 and not any(memory(s["layer"], layers) <= DEVICE_MEMORY for s in plans):
        layers -= 1
    fits = [s for s in plans if memory(s["layer"], layers) <= DEVICE_MEMORY]
    ours = [p["layer"] for p in answer["pareto"] if memory(p["layer"], layers) <= DEVICE_MEMORY]
    if not fits or not ours:
        return None
    best, mine = min(fits, key=lambda s: seconds(s["layer"])), min(ours, key=seconds)
    return (seconds(best["layer"]) / seconds(mine), memory(mine, layers) / memory(best["layer"], layers), best,
            layers)


def cases(run, failures):
    print("| model | GPUs | paper: speed / memory | Megatron | P as published | P⁺/P⁻ | layers in 32 GiB | "
          "Megatron | P as published | P⁺/P⁻ |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, model, figures, _ in MODELS:
        for gpus, (speed, percent) in zip(GPUS, figures):
            free = [unlimited(run, model, gpus, v) for v in VARIANTS]
            tight = [within_memory(run, model, gpus, v) for v in VARIANTS]
            if free[1][0] < 1 - 1e-6:
                failures.append(f"{name} on {gpus}: the pair is slower than Megatron")
            split = lambda plan: f"{plan['data']} × {plan['inner']}"
            show = lambda case: f"{case[0]:.2f} / {100 * case[1]:.0f}%" if case else "none fits"
            first = next((t for t in tight if t), None)
            print(f"| {name} | {gpus} | {speed:.2f} / {percent}% | {split(free[0][2])} | {show(free[0])} | "
                  f"{show(free[1])} | {first[3] if first else '–'} | {split(first[2]) if first else '–'} | "
                  f"{show(tight[0])} | {show(tight[1])} |", flush=True)


def pipelined(layer, layers, stages, micro_batches):
    """An iteration of a pipeline: bubble and steps of the fullest stage, then its gradients."""
    held = math.ceil(layers / stages)
    step = seconds(layer) - layer["gradient_reduce"]  # that term is a micro-batch's share
    return held * ((micro_batches + stages - 1) * step + micro_batches * layer["gradient_reduce"])


def fastest_pipelines(run, model, global_batch):
    """The fastest Megatron in 3D, and the fastest of each variant: (seconds, stages, split, micro-batch)."""
    theirs, ours = [], {variant: [] for variant in VARIANTS}
    for stages in (1, 2, 4, 8, 16):
        for batch in (1, 2, 4, 8, 16, 32):
            if batch > global_batch:
                continue
            micro_batches = global_batch // batch
            for variant in VARIANTS:
                answer = run(model, 32 // stages, variant, batch, micro_batches)
                time = pipelined(answer["layer"], answer["layers"], stages, micro_batches)
                ours[variant].append((time, stages, batch))
            for plan in megatron(answer):
                time = pipelined(plan["layer"], answer["layers"], stages, micro_batches)
                theirs.append((time, stages, plan["data"], plan["inner"], batch))
    return min(theirs), {variant: min(found) for variant, found in ours.items()}


def three_d(run):
    print("| model | paper | samples | Megatron: pipeline × data × tensor, micro-batch | P as published | P⁺/P⁻ | "
          "stages and micro-batch of P⁺/P⁻ |")
    print("|---|---|---|---|---|---|---|")
    for name, model, _, paper in MODELS:
        for global_batch in GLOBAL_BATCHES:
            (time, stages, data, tensor, batch), ours = fastest_pipelines(run, model, global_batch)
            pair = ours["plus_minus"]
            print(f"| {name} | {paper} | {global_batch} | {stages} × {data} × {tensor}, {batch} | "
                  f"{time / ours['paper'][0]:.2f} | {time / pair[0]:.2f} | {pair[1]}, {pair[2]} |", flush=True)


def batches(run):
    print("| model | GPUs | " + " | ".join(f"{b} samples" for b in (4, 8, 16, 32, 64)) + " |")
    print("|---|---|---|---|---|---|---|")
    for name, model in (("OPT 175B", "opt-175b"), ("Llama2 7B", "llama2-7b")):
        for gpus in (4, 8, 32):
            cells = []
            for batch in (4, 8, 16, 32, 64):
                answer = run(model, gpus, "plus_minus", batch)
                best = min(megatron(answer), key=lambda s: seconds(s["layer"]))
                cells.append(f"{seconds(best['layer']) / seconds(answer['layer']):.2f}")
            print(f"| {name} | {gpus} | " + " | ".join(cells) + " |", flush=True)


def links(run):
    """Speeds of both variants under other networks; the last column lets no group use several ports."""
    networks = [(1, ()), (2, ()), (4, ()), (1, ("--one-port",)), (2, ("--one-port",))]
    titles = [f"{100 / divisor:g} Gb/s{', one port' if flags else ''}" for divisor, flags in networks]
    print("| model | GPUs | paper | " + " | ".join(titles) + " |")
    print("|---|---|---|" + "---|" * len(networks))
    for name, model, figures, _ in MODELS:
        for gpus, (speed, _) in list(zip(GPUS, figures))[1:]:
            cells = []
            for divisor, flags in networks:
                cluster = run.slower_network(divisor)
                both = []
                for variant in VARIANTS:
                    answer = run(model, gpus, variant, 8, 1, cluster, *flags)
                    best = min(megatron(answer), key=lambda s: seconds(s["layer"]))
                    both.append(f"{seconds(best['layer']) / seconds(answer['layer']):.2f}")
                cells.append(", ".join(both))
            print(f"| {name} | {gpus} | {speed:.2f} | " + " | ".join(cells) + " |", flush=True)


def search_times(run, failures):
    print("| model | GPUs | paper | P as published | P⁺/P⁻ |")
    print("|---|---|---|---|---|")
    for name, model, _, _ in MODELS:
        for i, gpus in enumerate(GPUS):
            limit = PAPER_MS[name.split()[0]][i]
            taken = [1e3 * run(model, gpus, v)["search_seconds"] for v in VARIANTS]
            if max(taken) >= limit:
                failures.append(f"{name} on {gpus}: searched {max(taken):.0f} ms, the paper {limit} ms")
            print(f"| {name} | {gpus} | {limit} ms | {taken[0]:.1f} ms | {taken[1]:.1f} ms |", flush=True)
    taken = [run("opt-175b", 64, v, 8, 1, "h200-32x8")["search_seconds"] for v in VARIANTS]
    if max(taken) >= 30:
        failures.append(f"64 devices: searched {max(taken):.1f} s")
    print(f"| OPT 175B | 64 H200s | – | {taken[0]:.1f} s | {taken[1]:.1f} s |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("braid", nargs="?", default="build/braid")
    parser.add_argument("--configs", default=str(Path(__file__).resolve().parent.parent / "configs"))
    args = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        run = Runner(args.braid, args.configs, Path(scratch))
        for title, table in (("Search times", lambda: search_times(run, failures)),
                             ("The 24 cases", lambda: cases(run, failures)),
                             ("Speed by batch, P⁺/P⁻", lambda: batches(run)),
                             ("Speed by network", lambda: links(run)),
                             ("3D parallelism on 32 GPUs", lambda: three_d(run))):
            print(f"### {title}\n")
            table()
            print()
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
