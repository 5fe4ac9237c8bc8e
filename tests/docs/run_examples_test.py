"""Shows that run_examples.py finds what it looks for, each mistake planted in a document of its own."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import compare
import documents
import grammar
import rewrite
import run_examples

# A program with one verb; it prints its figures from the file `figures` in the repository.
PROGRAM = """#!/usr/bin/env bash
case "$*" in
"help --format json") cat {root}/grammar.json ;;
"--help") echo "Exit status: 0 done, 2 a mistake." ;;
*"--format json"*) cat {root}/answer.json ;;
*) cat {root}/answer.txt; exit "$(cat {root}/status)" ;;
esac
"""
GRAMMAR = {
    "verb": "braid",
    "options": [],
    "verbs": [
        {
            "verb": "braid plan",
            "options": [
                {"flags": ["--model"], "takes_value": True, "required": True},
                {"flags": ["--tree"], "takes_value": False, "required": False},
                {"flags": ["--format"], "takes_value": True, "required": False},
            ],
        }
    ],
}
ANSWER = """  model  a model
  time   1.250 s
Stages
  stage 0  dp8
  stage 1  dp4
  found in 3.1 ms
"""
COMMAND = "    build/braid plan --model m.json\n\n"


def document(sample, command=COMMAND):
    return f"# A title\n\nSome words:\n\n{command}```\n{sample}```\n"


# name, document, words of the complaint (None: no complaint)
CASES = [
    ("the sample is what the program prints", document(ANSWER), None),
    ("a time of the search does not count", document(ANSWER.replace("3.1 ms", "9 s")), None),
    ("lines are left out", document("…\n  time   1.250 s\n…\n  stage 1  dp4\n…\n"), None),
    (
        "a figure is another",
        document(ANSWER.replace("1.250", "1.240")),
        "the program now     time   1.250 s",
    ),
    ("a figure behind a gap is another", document("…\n  stage 1  dp2\n…\n"), "stage 1  dp4"),
    (
        "lines in another order",
        document("…\n  stage 1  dp4\n…\n  stage 0  dp8\n…\n"),
        "the document has",
    ),
    (
        "the sample ends early",
        document(ANSWER.replace("  found in 3.1 ms\n", "")),
        "found in 3.1 ms",
    ),
    ("the sample goes on", document(ANSWER + "  more\n"), "  more"),
    (
        "a flag that is none",
        document(ANSWER, COMMAND.replace("--model", "--modle")),
        "has no flag '--modle'",
    ),
    ("a verb that is none", document(ANSWER, COMMAND.replace("plan", "plna")), "no verb 'plna'"),
    ("a flag is missing", document(ANSWER, "    build/braid plan --tree\n\n"), "needs --model"),
    (
        "a value is missing",
        document(ANSWER, "    build/braid plan --tree --model\n\n"),
        "needs a value",
    ),
    (
        "parsed only, with a flag that is none",
        "<!-- example: parsed, a reason -->\n    srun -n 8 braid plan --modle x\n",
        "--modle",
    ),
    ("a flag in a sentence", "Use `--modle`.\n", "no program has a flag '--modle'"),
    ("a verb in a sentence", "Use `braid plna --tree`.\n", "no verb 'plna'"),
    ("a former name in a sentence", "`--model` (was `--modle`)\n", None),
    ("a sample without a command", "Words.\n\n```\noutput\n```\n", "a sample without a command"),
    ("an unknown note", "<!-- example: sometimes -->\n" + COMMAND, "unknown word 'sometimes'"),
    ("parsed without a reason", "<!-- example: parsed -->\n" + COMMAND, "say after 'parsed'"),
    (
        "times vary",
        document(ANSWER.replace("1.250", "7.5"), "<!-- example: times vary -->\n" + COMMAND),
        None,
    ),
    (
        "times vary, words do not",
        document(ANSWER.replace("dp8", "tp8"), "<!-- example: times vary -->\n" + COMMAND),
        "dp8",
    ),
    (
        "lines vary",
        document("Stages\n  stage 7  tp2\n", "<!-- example: lines vary -->\n" + COMMAND),
        None,
    ),
    (
        "lines vary, one is missing",
        document("Groups\n", "<!-- example: lines vary -->\n" + COMMAND),
        "no line 'Groups …'",
    ),
    ("a script that is none", "    scripts/plto_search x\n", "there is no scripts/plto_search"),
    (
        "a file that is none",
        "<!-- example: parsed, a reason -->\n    build/braid plan --model configs/m.json\n",
        "there is no configs/m.json",
    ),
    (
        "links",
        "# One thing: `a` and b\n\nSee [it](#one-thing-a-and-b) and [a file](../configs/table).\n",
        None,
    ),
    ("a link to no file", "See [it](nowhere.md).\n", "leads to no file"),
    ("a link to no heading", "# One\n\nSee [it](page.md#two).\n", "leads to no heading"),
    ("files in sentences", "Look at `configs/answer.json`, `docs/*.md` or `configs/`.\n", None),
    (
        "a file in a sentence",
        "Look at `configs/nothing.json`.\n",
        "there is no configs/nothing.json",
    ),
    ("a file that moved", "In `configs/none.json` (now `configs/answer.json`).\n", None),
    (
        "the include order",
        "runtime/ comm → ops → parallel → models →\n  checkpoint → train → measure\n",
        None,
    ),
    (
        "not the include order",
        "runtime/ comm → ops → parallel → measure\n",
        "not the include order",
    ),
    (
        "a hidden command",
        "<!-- run: build/braid plan --model\n  m.json -->\n```\n…\n  time   1.25 s\n…\n```\n",
        "1.250 s",
    ),
    (
        "figures in a sentence",
        "<!-- figures: build/braid plan --model m --format json | takes {time:.2f} s -->\nIt takes\n1.25 s.\n",
        None,
    ),
    (
        "another figure in a sentence",
        "<!-- figures: build/braid plan --model m --format json | takes {time:.2f} s -->\nIt takes 1.2 s.\n",
        "It takes 1.25 s.",
    ),
    (
        "a figure in a table",
        "<!-- figures: configs/answer.json | x \\| … {time:.2f} s \\| -->\n| a | b | c |\n|---|---|---|\n| x | 7 s | 1.25 s |\n",
        None,
    ),
    (
        "another figure in a table",
        "<!-- figures: configs/answer.json | x \\| … {time:.2f} s \\| -->\n| a | b | c |\n|---|---|---|\n| x | 7 s | 1.2 s |\n",
        "| x | 7 s | 1.25 s |",
    ),
    (
        "a sentence that is gone",
        "<!-- figures: build/braid plan --model m --format json | takes {time:.2f} s -->\nFast.\n",
        "does not say 'takes {time:.2f} s'",
    ),
    (
        "rows of a table",
        "<!-- rows: build/braid plan --model {row} --format json | {time:.1f} s -->\n| a | b |\n|---|---|\n| `x` | 1.2 s |\n",
        None,
    ),
    (
        "a row of a table",
        "<!-- rows: build/braid plan --model {row} --format json | {time:.1f} s -->\n| a | b |\n|---|---|\n| `x` | 1.3 s |\n",
        "| `x` | 1.2 s |",
    ),
    (
        "rows that name their figures",
        "<!-- rows: configs/answer.json | {row:.1f} s -->\n| a | b |\n|---|---|\n| `time` + `stages` | 3.2 s |\n",
        None,
    ),
    (
        "a row that names its figures",
        "<!-- rows: configs/answer.json | {row:.1f} s -->\n| a | b |\n|---|---|\n| `time` + `stages` | 1 s |\n",
        "3.2 s",
    ),
    (
        "a table that a command prints",
        "<!-- tables: cat configs/table -->\nWords.\n\n| a | b |\n|---|---|\n| 1 | 9 ms |\n",
        None,
    ),
    (
        "a table that a command prints otherwise",
        "<!-- tables: cat configs/table -->\n| a | b |\n|---|---|\n| 2 | 3 ms |\n",
        "| 1 | 3 ms |",
    ),
    (
        "a table that is gone",
        "<!-- tables: cat configs/table -->\n| a | c |\n|---|---|\n| 2 | 3 ms |\n",
        "0 tables in the place of 1",
    ),
    (
        "keys of a table",
        "<!-- keys: build/braid plan --model m --format json -->\n| key | |\n|---|---|\n| `time` | `stages` |\n",
        None,
    ),
    (
        "a key is missing",
        "<!-- keys: build/braid plan --model m --format json -->\n| key | |\n|---|---|\n| `time` | |\n",
        "the key 'stages' is not named",
    ),
    (
        "keys of a row",
        "<!-- keys: configs/answer.json\n  time: configs/answer.json -->\n| key | |\n|---|---|\n| `time` | `stages` |\n",
        None,
    ),
    (
        "a key of a row is missing",
        "<!-- keys: configs/answer.json\n  time: configs/answer.json -->\n| key | |\n|---|---|\n| `time` | a |\n| `stages` | |\n",
        "the row `time` does not name the key 'stages'",
    ),
    (
        "keys in a sentence",
        "<!-- keys: configs/answer.json -->\nThere are `time` and `stages`.\n",
        None,
    ),
    (
        "a key is missing in a sentence",
        "<!-- keys: configs/answer.json -->\nThere is `time`.\n",
        "the key 'stages' is not named",
    ),
    (
        "a key that is none",
        "<!-- keys: build/braid plan --model m --format json -->\n| key | |\n|---|---|\n| `time`, `stages`, `x` | |\n",
        "there is no key 'x'",
    ),
    (
        "a file of the repository",
        '<!-- file: answer.json -->\n```json\n{"stages": 2, "time": 1.25}\n```\n',
        None,
    ),
    (
        "another file",
        '<!-- file: answer.json -->\n```json\n{"stages": 3, "time": 1.25}\n```\n',
        "answer.json is another file",
    ),
]


class RunExamples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "build").mkdir()
        for name in ("configs", "tests/docs", "benchmarks", "docs", "scripts", "schemas"):
            (self.root / name).mkdir(parents=True)
        self.program = self.root / "build/braid"
        self.program.write_text(PROGRAM.replace("{root}", str(self.root)), encoding="utf-8")
        self.program.chmod(0o755)
        self.write("grammar.json", json.dumps(GRAMMAR))
        self.write("answer.json", json.dumps({"time": 1.25, "stages": 2}))
        self.write("answer.txt", ANSWER)
        self.write("configs/table", "words\n\n| a | b |\n|---|---|\n| 1 | 3 ms |\n")
        self.write("configs/answer.json", json.dumps({"time": 1.25, "stages": 2}))
        self.write("status", "0")

    def write(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")

    def check(self, text, **options):
        self.write("docs/page.md", text)
        checker = run_examples.Checker(self.root, self.program, **options)
        checker.document("docs/page.md")
        return checker

    def test_cases(self):
        for name, text, words in CASES:
            with self.subTest(name):
                faults = self.check(text).faults
                if words is None:
                    self.assertEqual(faults, [])
                else:
                    self.assertEqual(len(faults), 1, faults)
                    self.assertIn(words, faults[0])

    def test_a_status_counts(self):
        self.write("status", "3")
        self.assertIn("status 3 in the place of 0", self.check(document(ANSWER)).faults[0])
        self.assertEqual(
            self.check(document(ANSWER, "<!-- example: status 3 -->\n" + COMMAND)).faults, []
        )

    def test_a_long_example_waits(self):
        text = document("nothing of this\n", "<!-- example: long -->\n" + COMMAND)
        self.assertEqual(self.check(text).faults, [])
        self.assertEqual(self.check(text).skipped, 1)
        self.assertEqual(len(self.check(text, long=True).faults), 1)

    def test_update_writes_what_was_shown_and_is_content_then(self):
        stale = document("  model  a model\n  …\nStages\n  stage 0  tp8\n  …\n")
        self.assertEqual(self.check(stale, update=True).updated, 1)
        updated = (self.root / "docs/page.md").read_text(encoding="utf-8")
        self.assertEqual(updated, document("  model  a model\n  …\nStages\n  stage 0  dp8\n  …\n"))
        again = self.check(updated, update=True)
        self.assertEqual((again.updated, again.faults), (0, []))

    def test_update_leaves_alone_what_holds(self):
        text = document(ANSWER.replace("3.1 ms", "9 s"))
        self.assertEqual(self.check(text, update=True).updated, 0)
        self.assertEqual((self.root / "docs/page.md").read_text(encoding="utf-8"), text)

    def test_update_says_what_it_cannot_place(self):
        checker = self.check(document("…\nsomething else altogether\n…\n"), update=True)
        self.assertIn("nothing in the output is like the part", checker.faults[0])

    def test_update_of_figures_in_sentences_keeps_the_lines(self):
        note = "<!-- figures: build/braid plan --model m --format json | takes {time:.2f} s -->\n"
        self.assertEqual(self.check(note + "It takes\n7.00 s.\n", update=True).updated, 1)
        self.assertEqual(
            (self.root / "docs/page.md").read_text(encoding="utf-8"), note + "It takes\n1.25 s.\n"
        )

    def test_commands_of_a_document_share_a_folder(self):
        text = document("1\n", "    scripts/one > there.txt\n    scripts/two there.txt\n\n")
        for name, line in (("one", "echo 1"), ("two", 'cat "$1"')):
            self.write(f"scripts/{name}", f"#!/usr/bin/env bash\n{line}\n")
            os.chmod(self.root / "scripts" / name, 0o755)
        self.assertEqual(self.check(text).faults, [])
        self.assertFalse((self.root / "there.txt").exists())

    def test_every_verb_flag_and_status_is_listed(self):
        checker = run_examples.Checker(self.root, self.program)
        table = "| status | |\n|---|---|\n| 0 | done |\n| 2 | a mistake |\n"
        self.write("docs/file-formats.md", table)
        self.write("docs/commands.md", table + "\n## plan\n\n`--model`, `--tree`, `--format`\n")
        checker.whole()
        self.assertEqual(checker.faults, [])
        self.write(
            "docs/commands.md",
            table.replace("| 2 |", "| 4 |") + "\n## plan\n\n`--model`, `--tree-top`, `--format`\n",
        )
        checker.whole()
        self.assertEqual(len(checker.faults), 2)
        self.assertIn("does not name --tree", checker.faults[0])
        self.assertIn("[0, 4]", checker.faults[1])

    def test_the_index_links_to_every_document(self):
        checker = run_examples.Checker(self.root, self.program)
        (self.root / "docs/design").mkdir()
        for name in ("a.md", "design/0001-a.md", "design/0001-b.md"):
            self.write(f"docs/{name}", "")
        self.write("docs/README.md", "[a](a.md) [b](design/0001-a.md#there)")
        checker.index()
        self.assertEqual(len(checker.faults), 2, checker.faults)
        self.assertIn("does not link to design/0001-b.md", checker.faults[0])
        self.assertIn("have one number", checker.faults[1])

    def test_the_quickstart_runs_what_the_readme_shows(self):
        checker = run_examples.Checker(self.root, self.program)
        self.write("README.md", "    build/braid plan --model m.json --metrics run\n")
        script = 'name=m.json\nshow build/braid plan --model "$name" \\\n  --tree || status=$?\n'
        for text, words in (
            (script, None),
            (script.replace("name=m", "name=n"), "the README shows"),
            (script.replace("--tree", "--three"), "no flag '--three'"),
        ):
            checker.faults = []
            self.write("scripts/quickstart", text)
            checker.quickstart()
            self.assertEqual(len(checker.faults), 1 if words else 0, checker.faults)
            self.assertIn(words or "", "".join(checker.faults))

    def test_exit_status(self):
        self.write("docs/page.md", document(ANSWER))
        script = [
            run_examples.__file__,
            "--braid",
            str(self.program),
            "--root",
            str(self.root),
            "docs/page.md",
        ]
        self.assertEqual(subprocess.run(script, capture_output=True, check=False).returncode, 0)
        self.write("answer.txt", ANSWER.replace("dp8", "tp8"))
        self.assertEqual(subprocess.run(script, capture_output=True, check=False).returncode, 1)


class Parts(unittest.TestCase):
    def test_values_of_a_flag(self):
        text = "exact (default), bmw, or a baseline: dp, tp; several with commas"
        self.assertEqual(grammar.named_values(text), {"exact", "bmw", "dp", "tp"})
        self.assertEqual(grammar.named_values("fp32 or bf16: of gradients"), {"fp32", "bf16"})

    def test_values_in_tables(self):
        class Given:
            verbs = {"plan": [{"flags": ["--cost"], "type": "NAME", "text": "a (default) or b"}]}

        for row, count in (("`a`, `b`", 0), ("`a`, `c`", 1), ("`a`, `b`, `c`", 1), ("a word", 0)):
            text = f"## plan\n\n| flag | |\n|---|---|\n| `--cost NAME` | {row} |\n"
            self.assertEqual(len(grammar.value_faults(Given, text)), count, row)

    def test_words_that_lines_begin_with(self):
        for line, words in (
            ("  plan   4 × 4 samples", "plan"),
            ("braid: planned: 4", "planned"),
            ("  12  gather", ""),
            ("Time of a step   18 ms", "Time of a step"),
        ):
            self.assertEqual(compare.label(line), words)

    def test_a_rewritten_row_is_whole(self):
        output = [
            "Stages",
            "  0      decoder  tp8 dp2",
            "                  zero3 more",
            "  1      decoder  dp2",
            "The end",
        ]
        self.assertEqual(
            rewrite.rewrite(["…", "  0      decoder  tp8 dp2 zero2", "…"], output),
            ["Stages", "  0      decoder  tp8 dp2", "                  zero3 more", "…"],
        )

    def test_many_new_lines_are_left_out_and_few_are_shown(self):
        def rewritten(count):
            output = [
                "{",
                "  first: 1",
                *[f"  new {i}" for i in range(count)],
                "  last: 2",
                "}",
                "x",
            ]
            return rewrite.rewrite(["{", "  first: 1", "  last: 2", "…"], output)

        self.assertEqual(len(rewritten(3)), 7)
        self.assertEqual(rewritten(30), ["{", "  first: 1", "…", "  last: 2", "…"])

    def test_json_lines(self):
        value = {"short": [1, 2], "long": [{"key": "x" * 50}, {"key": "y" * 50}]}
        text = "\n".join(rewrite.json_lines(value))
        self.assertEqual(json.loads(text), value)
        self.assertIn('  "short": [1, 2],', text)

    def test_commands_go_on_behind_a_backslash(self):
        self.assertEqual(
            documents.commands_of(["    a --b \\", "      c  # words", "    d"]),
            ["a --b c  # words", "d"],
        )
        self.assertEqual(grammar.words_of("a --b c  # words"), ["a", "--b", "c"])


if __name__ == "__main__":
    unittest.main()
