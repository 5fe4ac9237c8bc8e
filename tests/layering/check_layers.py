"""Checks that every include points upwards: check_layers.py ROOT.

cli may include runtime and planner, runtime may include planner, and inside planner and runtime a
folder may include itself and the folders before it in ORDER. The planner sees the standard library,
fmt and JSON, nothing else, except POSIX where it opens files; runtime/comm sees no torch, except
where NCCL needs its streams. Prints a line for each offending include, and then exits with 1.
"""

import re
import sys
from pathlib import Path

ORDER = {
    "planner": ["core", "model", "cluster", "strategy", "profile", "cost", "primepar", "plan",
                "simulate", "search", "explain", "validate"],
    "runtime": ["comm", "ops", "parallel", "models", "checkpoint", "train", "measure"],
}
TORCH = ("ATen/", "c10/", "torch/")
ROOMS = ["planner", "runtime", "cli"]  # each may include itself and those before it
OUTSIDE = ["tests", "benchmarks"]  # may include every room; no room may include them
FILE_SEAM = "planner/core/file.cpp"
POSIX = ("fcntl.h", "sys/stat.h", "unistd.h")
JSON_SEAM = ("planner/core/json.h", "planner/core/json_fwd.h")

SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<form>[<"](?P<target>[^>"]+)[>"])')


def order_fault(room, file, target):
    """Why a file of a room must not include another header of the same room, or None."""
    order = ORDER[room]
    here, there = file.split("/")[1], target.split("/")[1]
    for folder in (here, there):
        if folder not in order:
            return (f"{room}/{folder} has no place in the include order; give it one in "
                    "tests/layering/check_layers.py")
    if order.index(there) > order.index(here):
        return f"{there} comes after {here} in the include order ({', '.join(order)})"
    return None


def external_fault(file, target, quoted):
    """Why a file must not include a header from outside the project, or None."""
    if target.startswith("nlohmann/") and file not in JSON_SEAM:
        return f'JSON comes in through "{JSON_SEAM[0]}" only'
    if quoted:
        return "write the path from the root of the repository, or use <> for a library's header"
    in_planner = file.startswith("planner/")
    standard = "/" not in target and "." not in target
    if file == FILE_SEAM and target in POSIX:
        return None
    if in_planner and not (standard or target.startswith(("fmt/", "nlohmann/"))):
        return "the planner uses the standard library, fmt and JSON only"
    # The schedule player is built with comm, for the sanitizers' sake.
    bare = file.startswith(("runtime/comm/", "runtime/parallel/schedule_player"))
    if bare and "nccl" not in file and target.startswith(TORCH):
        return "runtime/comm and the schedule player are built without torch"
    return None


def fault(file, target, quoted):
    """Why `file` (relative to the root) must not include `target`, or None."""
    room, target_room = file.split("/")[0], target.split("/")[0]
    if "/" not in target or target_room not in ROOMS + OUTSIDE:
        return external_fault(file, target, quoted)
    if room in OUTSIDE:
        return None
    if target_room in OUTSIDE:
        return f"{room} must not depend on {target_room}"
    if ROOMS.index(target_room) > ROOMS.index(room):
        return f"{room} must not know {target_room}: cli → runtime → planner, never back"
    same_room = room == target_room and room in ORDER
    return order_fault(room, file, target) if same_room else None


def check(root):
    """All faults of a tree, as lines."""
    faults = []
    for room in ROOMS + OUTSIDE:
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            file = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                reason = fault(file, match["target"], quoted=match["form"].startswith('"'))
                if reason:
                    faults.append(f"{file}:{number}: #include {match['form']}: {reason}")
    return faults


def main():
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "planner").is_dir():
        sys.exit("usage: check_layers.py ROOT, where ROOT holds planner/")
    faults = check(Path(sys.argv[1]))
    print("\n".join(faults) if faults else "every include points upwards")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
