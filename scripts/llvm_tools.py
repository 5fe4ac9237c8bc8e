"""What scripts/format and scripts/tidy share: which LLVM tools, and which files are ours."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

# One version for everybody, since another formats and warns differently. 16 is the oldest that
# understands std::source_location and std::views as g++ 12 ships them. scripts/setup installs it.
VERSION = 16
SKIPPED = 77  # CTest's SKIP_RETURN_CODE

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["planner", "runtime", "cli", "tests", "benchmarks"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def sources():
    """Every C++ file of the project, sorted."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*")
                  if path.suffix in SUFFIXES)


def find_tool(name):
    """The command for a tool in VERSION; where there is none, says so and exits with SKIPPED."""
    for candidate in (f"{name}-{VERSION}", name):
        if shutil.which(candidate):
            answer = subprocess.run([candidate, "--version"], capture_output=True, text=True,
                                    check=True).stdout
            found = re.search(r"version (\d+)\.", answer)
            if found and int(found[1]) == VERSION:
                return candidate
    print(f"skipped: {name} {VERSION} is not installed (scripts/setup installs it)")
    sys.exit(SKIPPED)
