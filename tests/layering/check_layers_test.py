"""Shows that check_layers.py finds what it looks for, each mistake planted in a tree of its own."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_layers

# file, include, words of the complaint (None: allowed)
CASES = [
    ("planner/cost/memory.cpp", '"planner/cost/memory.h"', None),
    ("planner/cost/memory.cpp", '"planner/core/units.h"', None),
    ("planner/cost/memory.cpp", "<vector>", None),
    ("planner/cost/memory.cpp", "<fmt/core.h>", None),
    ("planner/core/json.h", "<nlohmann/json.hpp>", None),
    ("runtime/comm/mpi.cpp", "<mpi.h>", None),
    ("runtime/train/trainer.cpp", '"planner/plan/plan.h"', None),
    ("runtime/train/trainer.cpp", '"runtime/comm/group.h"', None),
    ("runtime/comm/nccl.cpp", "<c10/cuda/CUDAStream.h>", None),
    ("runtime/ops/linear.cpp", "<ATen/core/Tensor.h>", None),
    ("cli/plan.cpp", '"runtime/train/trainer.h"', None),
    ("cli/plan.cpp", "<CLI/CLI.hpp>", None),
    ("tests/search/search_test.cpp", '"planner/search/search.h"', None),
    ("tests/search/search_test.cpp", '"tests/support/problems.h"', None),
    ("planner/core/text.h", '"planner/model/layer.h"', "model comes after core"),
    ("planner/cost/memory.cpp", '"planner/search/search.h"', "search comes after cost"),
    ("planner/simulate/events.cpp", '"planner/search/search.h"', "search comes after simulate"),
    ("planner/cost/memory.cpp", '"planner/misc/bits.h"', "planner/misc has no place"),
    ("planner/misc/bits.h", '"planner/core/units.h"', "planner/misc has no place"),
    ("runtime/ops/linear.cpp", '"runtime/parallel/site.h"', "parallel comes after ops"),
    ("runtime/misc/bits.h", '"runtime/comm/group.h"', "runtime/misc has no place"),
    ("runtime/comm/group.h", "<ATen/core/Tensor.h>", "built without torch"),
    ("runtime/parallel/schedule_player.cpp", "<c10/util/Half.h>", "built without torch"),
    ("planner/cost/memory.cpp", '"runtime/comm/group.h"', "planner must not know runtime"),
    ("planner/cost/memory.cpp", '"tests/support/problems.h"', "must not depend on tests"),
    ("runtime/comm/group.h", '"cli/flags.h"', "runtime must not know cli"),
    ("planner/cost/memory.cpp", '"memory.h"', "from the root of the repository"),
    ("planner/cost/memory.cpp", "<nlohmann/json.hpp>", "JSON comes in through"),
    ("cli/plan.cpp", "<nlohmann/json.hpp>", "JSON comes in through"),
    ("planner/cost/memory.cpp", "<torch/torch.h>", "standard library, fmt and JSON only"),
    ("planner/cost/memory.cpp", "<ATen/ATen.h>", "standard library, fmt and JSON only"),
    ("planner/cost/memory.cpp", "<c10/util/Half.h>", "standard library, fmt and JSON only"),
    ("planner/core/file.cpp", "<sys/stat.h>", None),
    ("planner/cost/memory.cpp", "<unistd.h>", "standard library, fmt and JSON only"),
    ("planner/cost/memory.cpp", "<mpi.h>", "standard library, fmt and JSON only"),
    ("planner/cost/memory.cpp", "<nccl.h>", "standard library, fmt and JSON only"),
    ("planner/cost/memory.cpp", "<cuda_runtime.h>", "standard library, fmt and JSON only"),
]


class CheckLayers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "planner").mkdir()

    def plant(self, file, include):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// a comment\n  #  include {include}\n", encoding="utf-8")
        return path

    def test_cases(self):
        for file, include, words in CASES:
            with self.subTest(file=file, include=include):
                path = self.plant(file, include)
                faults = check_layers.check(self.root)
                path.unlink()
                if words is None:
                    self.assertEqual(faults, [])
                else:
                    self.assertEqual(len(faults), 1)
                    self.assertIn(f"{file}:2: #include {include}: ", faults[0])
                    self.assertIn(words, faults[0])

    def test_exit_status(self):
        script = [sys.executable, "-B", check_layers.__file__, str(self.root)]
        self.plant("planner/core/text.h", "<string>")
        self.assertEqual(subprocess.run(script, capture_output=True, check=False).returncode, 0)
        self.plant("planner/core/error.h", "<torch/torch.h>")
        self.assertEqual(subprocess.run(script, capture_output=True, check=False).returncode, 1)


if __name__ == "__main__":
    unittest.main()
