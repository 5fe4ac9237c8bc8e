#!/usr/bin/env python3
"""Holds Braid against Galvatron's own engine on Galvatron's own profiles.

Takes the folder with the profile files and cases.csv (model,seq,layers,nodes,gpus_per_node,mem_gb,gbsz,
status,...,pred_time_s,...,search_cpu_s). For every case it plans three times: with Galvatron's formulas
and search (must reproduce its prediction), with its formulas and the exact search (must never be slower),
and with Braid's own cost, where Galvatron's plan is priced by the same simulator.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

HIDDEN = {"llama2-7b": [4096], "llama-7b": [4096], "bert-large": [1024], "t5-3B": [1024, 1024]}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done


def import_profile(braid, data, row, folder):
    layers = ",".join(
        f"{h}:{s}:{n}"
        for h, s, n in zip(HIDDEN[row["model"]], row["seq"].split("/"), row["layers"].split("/")))
    out = folder / f"{row['model']}_{row['nodes']}x{row['gpus_per_node']}.json"
    if not out.exists():
        run([braid, "import", "galvatron", "--hardware", str(data / "hardware"), "--model-profile",
             str(data / row["model"]), "--layers", layers, "--nodes", row["nodes"],
             "--gpus-per-node", row["gpus_per_node"], "--out", str(out)])
    return out


def plan(braid, profile, row, cost, algorithm, out=None):
    command = [braid, "plan", "--profile", str(profile), "--memory", f"{row['mem_gb']}GiB",
               "--global-batch", row["gbsz"], "--cost", cost, "--algorithm", algorithm,
               "--threads", "1", "--format", "json"]
    if out:
        command += ["--out", str(out)]
    return json.loads(run(command).stdout)


def reprice(braid, plan_file, profile, row):
    """Seconds of a plan under Braid's cost, by the event simulator, and whether Braid says that it fits."""
    text = json.loads(plan_file.read_text())
    text["cost"] = "measured"
    plan_file.write_text(json.dumps(text, indent=2) + "\n")
    command = [braid, "explain", str(plan_file), "--profile", str(profile), "--format", "json", "--memory"]
    fits = run(command + [f"{row['mem_gb']}GiB"]).returncode == 0
    answer = json.loads(run(command + ["1TiB"]).stdout)
    return answer["predicted"]["iteration_seconds"], fits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--braid", default="build/braid")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with cases.csv")
    args = parser.parse_args()
    cases = args.data / "cases.csv"
    if not cases.exists():
        print(f"{cases} is not there: nothing to compare with")
        return 0
    header = (f"{'model':10} {'gpus':>4} {'GB':>3} {'batch':>5} | {'Galvatron':>9} {'copied':>9} {'error':>8} | "
              f"{'exact':>9} {'faster':>7} {'CPU ratio':>9} | {'its, sim':>8} {'Braid':>8} {'faster':>7}")
    print(header)
    print("-" * len(header))
    worst, failures, faster = 0.0, [], 0
    least_ratio = float("inf")
    braid_times = {}
    with tempfile.TemporaryDirectory() as temporary, cases.open() as file:
        folder = pathlib.Path(temporary)
        for row in csv.DictReader(file):
            profile = import_profile(args.braid, args.data, row, folder)
            name = f"{row['model']:10} {int(row['nodes']) * int(row['gpus_per_node']):>4} {row['mem_gb']:>3} {row['gbsz']:>5}"
            its_file = folder / "its.json"
            copied = plan(args.braid, profile, row, "galvatron", "galvatron", its_file)
            exact = plan(args.braid, profile, row, "galvatron", "exact")
            own = plan(args.braid, profile, row, "measured", "exact")
            ratio = float(row["search_cpu_s"]) / max(exact["search"]["cpu_seconds"], 1e-6)
            least_ratio = min(least_ratio, ratio)
            own_time = own["predicted"]["iteration_seconds"] if own["status"] == "ok" else None
            key = (row["model"], row["nodes"], row["gbsz"])
            braid_times.setdefault(key, []).append((float(row["mem_gb"]), own_time))
            if row["status"] != "ok":
                if copied["status"] != "infeasible":
                    failures.append(f"{name}: Galvatron found nothing, the copy did")
                exact_text = (f"{exact['predicted']['iteration_seconds']:9.4f}" if exact["status"] == "ok"
                              else "   none  ")
                own_text = f"{own_time:8.4f}" if own_time else "    none"
                print(f"{name} | {'none':>9} {copied['status'][:9]:>9} {'':>8} | {exact_text} {'':>7} {ratio:>8.0f}x | "
                      f"{'':>8} {own_text}")
                continue
            want = float(row["pred_time_s"])
            if copied["status"] != "ok":
                failures.append(f"{name}: the copy found nothing")
                continue
            got = copied["predicted"]["iteration_seconds"]
            best = exact["predicted"]["iteration_seconds"]
            error = got / want - 1
            worst = max(worst, abs(error))
            if abs(error) > 1e-3:
                failures.append(f"{name}: the copy is off by {error:.2e}")
            if best > got * (1 + 1e-9):
                failures.append(f"{name}: exact is slower than Galvatron's plan")
            faster += best < got * (1 - 1e-6)
            its_time, fits = reprice(args.braid, its_file, profile, row)
            gain = its_time / own_time - 1 if own_time else float("nan")
            if own_time is None or own_time > its_time * (1 + 1e-9):
                failures.append(f"{name}: Braid's plan is slower in simulation ({own_time} against {its_time})")
            print(f"{name} | {want:9.4f} {got:9.4f} {error:8.1e} | {best:9.4f} {got / best - 1:6.2%} {ratio:>8.0f}x | "
                  f"{its_time:8.4f}{' ' if fits else '*'} {own_time or float('nan'):8.4f} {gain:6.2%}")
    for key, times in braid_times.items():
        times.sort()
        solved = [t for _, t in times if t is not None]
        if any(later > earlier * (1 + 1e-9) for earlier, later in zip(solved, solved[1:])):
            failures.append(f"{key}: more memory gave a slower plan: {times}")
    print(f"\ncopy: largest error {worst:.1e} · exact: faster in {faster} cases, at least {least_ratio:.0f} times "
          f"less CPU time · * = does not fit by Braid's account of memory")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
