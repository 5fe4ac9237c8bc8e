"""What scripts/format and scripts/tidy share: which LLVM tools, and which files are ours."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

# One version for everybody, since another formats and warns differently; scripts/setup installs it.
# clang-tidy passes over system headers from 21 on, of which libtorch has many: half the time.
VERSIONS = {"clang-format": 16, "clang-tidy": 23}
SKIPPED = 77  # CTest's SKIP_RETURN_CODE

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["planner", "runtime", "cli", "tests", "benchmarks"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def sources():
    """Every C++ file of the project, sorted."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*")
                  if path.suffix in SUFFIXES)


def find_tool(name):
    """The command for a tool in its version; where there is none, says so and exits with SKIPPED."""
    version = VERSIONS[name]
    for candidate in (ROOT / ".venv/bin" / name, f"{name}-{version}", name):
        if shutil.which(candidate):
            answer = subprocess.run([candidate, "--version"], capture_output=True, text=True,
                                    check=True).stdout
            found = re.search(r"version (\d+)\.", answer)
            if found and int(found[1]) == version:
                return candidate
    print(f"skipped: {name} {version} is not installed (scripts/setup installs it)")
    sys.exit(SKIPPED)
