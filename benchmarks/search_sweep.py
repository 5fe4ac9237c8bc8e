#!/usr/bin/env python3
"""How long planning takes, and how close its certificates are, over all shipped models and clusters.

    benchmarks/search_sweep.py build/braid --out now.json
    benchmarks/search_sweep.py OTHER/braid --out before.json
    benchmarks/search_sweep.py --compare before.json now.json --braid build/braid

Every search is `braid plan --threads 1` (CPU seconds are its own count). A sweep that was cut off
goes on from its file. The comparison also prices
each plan of the first file anew with `--braid` (braid check), so that it says how much slower plans
found at other prices really are.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def search(braid, model, cluster, batch, limit):
    command = [
        braid, "plan", "--model", ROOT / f"configs/models/{model}.json",
        "--cluster", ROOT / f"configs/clusters/{cluster}.json",
        "--global-batch", str(batch), "--threads", "1", "--format", "json",
    ]
    row = {"model": model, "cluster": cluster}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return row | {"status": "timeout"}
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        return row | {"status": f"exit {done.returncode}", "message": done.stderr[:200]}
    row["status"] = answer["status"]
    row["cpu"] = answer.get("search", {}).get("cpu_seconds")
    if answer["status"] == "ok":
        row["seconds"] = answer["predicted"]["iteration_seconds"]
        row["bound"] = answer["search"]["lower_bound_seconds"]
        row["plan"] = answer["plan"]
    return row


def names(folder):
    return sorted(p.stem for p in (ROOT / "configs" / folder).glob("*.json"))


def sweep(args):
    cases = [
        (model, cluster)
        for model in args.models or names("models")
        for cluster in args.clusters or names("clusters")
    ]
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    known = {(row["model"], row["cluster"]) for row in rows}
    cases = [case for case in cases if case not in known]
    total = len(cases) + len(rows)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = [
            pool.submit(search, args.braid, model, cluster, args.global_batch, args.limit)
            for model, cluster in cases
        ]
        for job in concurrent.futures.as_completed(jobs):
            rows.append(job.result())
            args.out.write_text(json.dumps(rows))
            print(f"\r{len(rows)} of {total}", end="", file=sys.stderr)
    print(file=sys.stderr)
    summarize(rows)


def gap(row):
    return row["seconds"] / row["bound"] - 1 if row["bound"] > 0 else float("inf")


def summarize(rows):
    print(f"{len(rows)} questions: " + ", ".join(
        f"{sum(row['status'] == status for row in rows)} {status}"
        for status in sorted({row["status"] for row in rows})))
    found = [row for row in rows if row["status"] == "ok"]
    cpu = sorted(row["cpu"] for row in found)
    gaps = sorted(gap(row) for row in found)
    for name, values, unit in [("CPU", cpu, " s"), ("gap", [100 * g for g in gaps], "%")]:
        print(f"{name}: median {statistics.median(values):.3g}{unit}, "
              f"90% below {values[int(0.9 * len(values))]:.3g}{unit}, "
              f"most {values[-1]:.3g}{unit}")
    print(f"proven within 0.1%: {sum(g < 1e-3 for g in gaps)} of {len(gaps)}")


def priced_anew(braid, plan):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plan, file)
        file.flush()
        done = subprocess.run([braid, "check", file.name, "--format", "json"],
                              capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def compare(args):
    before, now = (
        {(row["model"], row["cluster"]): row for row in json.loads(file.read_text())}
        for file in args.compare
    )
    for rows in (before, now):
        summarize(list(rows.values()))
        print()
    both = [key for key in now if now[key]["status"] == "ok" and before[key]["status"] == "ok"]
    lost = [key for key in before if before[key]["status"] == "ok" and now[key]["status"] != "ok"]
    print(f"answers lost: {', '.join(map(str, lost)) or 'none'}")
    ratios = sorted(now[key]["cpu"] / max(1e-3, before[key]["cpu"]) for key in both)
    print(f"CPU of a search, now over before: median {statistics.median(ratios):.2f}, "
          f"90% below {ratios[int(0.9 * len(ratios))]:.2f}")
    print("\n| model | cluster | before, priced now | now | slower by |\n|---|---|---|---|---|")
    shape = ("micro_batches", "schedule", "chunks", "mesh_order", "stages")
    changed = slower = 0
    for key in both:
        if all(before[key]["plan"][k] == now[key]["plan"][k] for k in shape):
            continue
        changed += 1
        anew = priced_anew(args.braid, before[key]["plan"])["iteration_seconds"]
        ratio = anew / now[key]["seconds"]
        slower += ratio > 1.001
        if ratio > 1 + args.show:
            print(f"| {key[0]} | {key[1]} | {anew:.4g} s | {now[key]['seconds']:.4g} s "
                  f"| {100 * (ratio - 1):.1f}% |")
    print(f"\n{changed} of {len(both)} plans changed; {slower} of the old ones are slower by more "
          "than 0.1% at the prices of now")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid", nargs="?", type=pathlib.Path, help="the program to measure")
    parser.add_argument("--out", type=pathlib.Path, help="where a sweep's answers go")
    parser.add_argument("--global-batch", type=int, default=256)
    parser.add_argument("--models", nargs="*", help="default: all in configs/models")
    parser.add_argument("--clusters", nargs="*", help="default: all in configs/clusters")
    parser.add_argument("--jobs", type=int, default=1, help="searches at a time")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one search")
    parser.add_argument("--compare", nargs=2, type=pathlib.Path, metavar=("BEFORE", "NOW"))
    parser.add_argument("--braid", dest="pricer", type=pathlib.Path, help="prices plans anew")
    parser.add_argument("--show", type=float, default=0.01, help="list plans slower by this share")
    args = parser.parse_args()
    if args.compare:
        if args.pricer is None:
            parser.error("--compare needs --braid PROGRAM, which prices the plans of BEFORE")
        args.braid = args.pricer
        compare(args)
    elif args.braid and args.out:
        sweep(args)
    else:
        parser.error("give a program and --out FILE, or --compare BEFORE NOW --braid PROGRAM")


if __name__ == "__main__":
    main()
