#!/usr/bin/env python3
"""Runs the commands of the documents and compares what they print with the samples there.

    run_examples.py --braid build/braid                    every document, the quick commands
    run_examples.py --braid build/braid --long README.md   all commands of one
    run_examples.py --braid build/braid --update           write the samples of now

How documents mark their examples is told in documents.py. Exit status 1 says that something differs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compare
import documents
import figures
import grammar
import links
import rewrite

sys.path.append(str(Path(__file__).resolve().parents[1] / "layering"))
from check_layers import ORDER  # noqa: E402

ORDERS = list(ORDER.values())
SHARED = ("configs", "tests", "benchmarks", "docs", "scripts", "schemas", "LICENSE")
LIMIT = {False: 300, True: 3600}  # seconds a command may take, by --long
INDEX = "docs/README.md"
QUICKSTART = "scripts/quickstart"
VERBS = "docs/commands.md"
STATUSES = ("docs/commands.md", "docs/file-formats.md")


class Scratch:
    """The folder in which a document's commands run: the repository's root as far as they see."""

    def __init__(self, root, program, limit):
        self.folder = Path(tempfile.mkdtemp(prefix="braid-docs-"))
        self.limit = limit
        for name in SHARED:
            (self.folder / name).symlink_to(root / name)
        build = self.folder / "build"
        build.mkdir()
        (build / "braid").symlink_to(program)
        if (program.parent / "benchmarks").is_dir():
            (build / "benchmarks").symlink_to(program.parent / "benchmarks")
        dropped = ("COLUMNS", "NO_COLOR", "XDG_CACHE_HOME")
        self.environment = {key: value for key, value in os.environ.items() if key not in dropped}
        self.environment |= {
            "PATH": f"{build}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }
        self.answers = {}

    def run(self, command):
        """The exit status and what a terminal would show."""
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=self.folder,
                env=self.environment,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self.limit,
            )
        except subprocess.TimeoutExpired:
            return None, f"no answer within {self.limit} s"
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def answer(self, command):
        """The JSON that a command prints, or that a file of the folder holds."""
        if command not in self.answers:
            path = self.folder / command
            if " " not in command and path.is_file():
                return json.loads(path.read_text(encoding="utf-8"))
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.environment,
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.limit,
            )
            try:
                self.answers[command] = json.loads(done.stdout)
            except ValueError:
                raise figures.FigureError(
                    f"no JSON came from: {command}\n{done.stderr.decode()}"
                ) from None
        return self.answers[command]

    def remove(self):
        shutil.rmtree(self.folder)


def expected_status(example):
    """Of the last command: as the note says, else as the sample shows."""
    if example.status is not None:
        return example.status
    lines = example.sample.lines if example.sample else []
    if any(line.startswith("braid: error:") for line in lines):
        return 2
    return (
        3
        if any(line.startswith(("No plan fits", "The plan does not fit")) for line in lines)
        else 0
    )


class Checker:
    """Checks the examples of documents; collects faults, and with `update` new lines for them."""

    def __init__(self, root, program, *, long=False, update=False, show=False):
        self.root, self.program = root, program
        self.long, self.update, self.show = long, update, show
        self.grammar = grammar.Grammar(program)
        self.foreign = grammar.FOREIGN | grammar.script_flags(root)
        self.faults, self.ran, self.parsed, self.skipped, self.updated = [], 0, 0, 0, 0
        self.slowest = []

    def document(self, name):
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        try:
            prose = documents.prose_of(text)
            found = grammar.span_faults(self.grammar, self.foreign, prose) + links.faults(
                self.root, name, prose
            )
            found += links.order_faults(text, ORDERS) + links.path_faults(self.root, prose)
            self.faults += [f"{name}:{line}: {reason}" for line, reason in found]
            examples = documents.examples_of(name, text)
        except documents.DocumentError as error:
            self.faults.append(f"{name}: {error}")
            return
        scratch = Scratch(self.root, self.program, LIMIT[self.long])
        edits = []
        try:
            for example in examples:
                edits += self.example(scratch, example)
        finally:
            scratch.remove()
        if edits:
            self._write(path, text, edits)

    def _write(self, path, text, edits):
        lines = text.split("\n")
        latest = {
            (first, last): now for first, last, now in edits
        }  # several notes may change one paragraph
        for (first, last), now in sorted(latest.items(), reverse=True):
            lines[first:last] = now
        path.write_text("\n".join(lines), encoding="utf-8")
        self.updated += len(edits)

    def _fault(self, example, text):
        indented = text.replace("\n", "\n    ")
        self.faults.append(f"{example.document}:{example.line}: {indented}")

    def example(self, scratch, example):
        """Checks one example; new lines for its document, each as (first, last, lines)."""
        try:
            if example.kind in ("run", "parsed"):
                return self._run(scratch, example)
            if example.kind == "file":
                return self._file(scratch, example)
            if example.long and not self.long:
                self.skipped += 1
                return []
            return {
                "figures": self._figures,
                "rows": self._rows,
                "keys": self._keys,
                "tables": self._tables,
            }[example.kind](scratch, example)
        except (figures.FigureError, rewrite.CannotRewrite) as error:
            self._fault(example, str(error))
            return []

    def _run(self, scratch, example):
        for command in example.commands:
            reason = grammar.command_fault(self.grammar, self.root, command)
            if reason and expected_status(example) != 2:
                self._fault(example, f"{reason}: {command}")
                return []
        if example.kind == "parsed" or any(
            grammar.absent_filter(command) for command in example.commands
        ):
            self.parsed += 1
            return []
        if example.long and not self.long:
            self.skipped += 1
            return []
        for command in example.commands:
            begin = time.monotonic()
            status, output = scratch.run(command)
            self.slowest.append((time.monotonic() - begin, f"{example.document}:{example.line}"))
            if self.show:
                print(f"$ {command}\n{output}", flush=True)
            wanted = expected_status(example) if command == example.commands[-1] else 0
            if status != wanted:
                self._fault(
                    example,
                    f"status {status} in the place of {wanted}: {command}\n{output[-1500:]}",
                )
                return []
        self.ran += 1
        return self._compare(example, output) if example.sample else []

    def _compare(self, example, text):
        sample, output = example.sample.lines, compare.clean(text, example.sample.lines)
        if example.sample.language == "json" and not any(compare.is_gap(line) for line in sample):
            if figures.same_json("\n".join(sample), text):
                return []
            reason, now = "the JSON is another now", rewrite.json_lines(json.loads(text))
        else:
            reason = compare.fault(example, sample, output)
            now = rewrite.rewrite(sample, output) if reason and self.update else None
        if reason and not self.update:
            self._fault(example, f"{example.commands[-1]}\n{reason}")
        return (
            [(example.sample.first + 1, example.sample.last - 1, now)]
            if reason and self.update
            else []
        )

    def _file(self, scratch, example):
        text = "\n".join(example.sample.lines) + "\n"
        own = self.root / example.name
        if not own.is_file():
            (scratch.folder / example.name).write_text(text, encoding="utf-8")
            return []
        there = own.read_text(encoding="utf-8")
        if text == there or figures.same_json(text, there):
            return []
        if not self.update:
            self._fault(example, f"{example.name} is another file")
            return []
        return [(example.sample.first + 1, example.sample.last - 1, there.rstrip("\n").split("\n"))]

    def _changed(self, example, now):
        if now == example.target.lines:
            return []
        if self.update:
            example.target.lines = now
            return [(example.target.first, example.target.last, now)]
        for here, there in zip(example.target.lines, now, strict=True):
            if here != there:
                self._fault(example, f"the document has  {here}\nthe program now   {there}")
        return []

    def _figures(self, scratch, example):
        self.ran += 1
        answer = scratch.answer(example.commands[0])
        return self._changed(
            example, figures.paragraph(example.target.lines, example.templates, answer)
        )

    def _rows(self, scratch, example):
        now = example.target.lines[:2]
        for line in example.target.lines[2:]:
            self.ran += 1
            names = figures.row_names(line) or [""]
            command = example.commands[0].replace("{row}", names[0])
            template = example.templates[-1].replace("{row", "{" + "+".join(names))
            answer = scratch.answer(command)
            for path in example.templates[:-1]:
                answer = figures.look_up(answer, path)
            now.append(figures.row(line, template, answer))
        return self._changed(example, now)

    def _keys(self, scratch, example):
        def keys_of(sources):
            keys = set()
            for source in sources.split(" + "):
                command, path = figures.source_of(source)
                keys |= figures.keys_at(scratch.answer(command), path)
            return keys

        lines = example.target.lines
        faults = figures.key_faults(lines, keys_of(example.name))
        for name, sources in example.rows.items():
            faults += figures.row_faults(lines, name, keys_of(sources))
        for reason in faults:
            self._fault(example, reason)
        return []

    def _tables(self, scratch, example):
        reason = grammar.command_fault(self.grammar, self.root, example.commands[0])
        status, output = (None, reason) if reason else scratch.run(example.commands[0])
        printed = figures.tables_of(output.split("\n"))
        if status != 0 or not printed:
            self._fault(example, f"no tables came from: {example.commands[0]}\n{output[-1500:]}")
            return []
        self.ran += 1
        edits = []
        for head in dict.fromkeys(table[0] for table in printed):
            shown = [block for block in example.tables if block.lines[0] == head]
            new = [table for table in printed if table[0] == head]
            if len(shown) != len(new):
                self._fault(
                    example, f"{len(shown)} tables in the place of {len(new)} with the head {head}"
                )
                continue
            for block, table in zip(shown, new, strict=True):
                edits += self._table(example, block, table)
        return edits

    def _table(self, example, block, table):
        """A table of a document against a printed one; times of this machine do not count."""
        same = len(block.lines) == len(table) and all(map(compare.same_row, block.lines, table))
        if same or self.update:
            return [] if same else [(block.first, block.last, table)]
        wrong = next(
            (pair for pair in zip(block.lines, table, strict=False) if not compare.same_row(*pair)),
            ("", ""),
        )
        self._fault(example, f"the document has  {wrong[0]}\nthe program now   {wrong[1]}")
        return []

    def whole(self):
        """What speaks of all verbs: the section of each in commands.md, and the exit statuses."""
        text = (self.root / VERBS).read_text(encoding="utf-8")
        found = grammar.unlisted(self.grammar, text) + grammar.value_faults(self.grammar, text)
        self.faults += [f"{VERBS}: {reason}" for reason in found]
        shown = subprocess.run(
            [self.program, "--help"], capture_output=True, check=True, text=True
        ).stdout
        for name in STATUSES:
            listed = grammar.listed_statuses((self.root / name).read_text(encoding="utf-8"))
            if listed != grammar.statuses_of(shown):
                self.faults.append(
                    f"{name}: lists the exit statuses {sorted(listed)}, 'braid --help' "
                    f"{sorted(grammar.statuses_of(shown))}"
                )

    def index(self):
        self.faults += links.unlisted(self.root, INDEX)

    def quickstart(self):
        readme = documents.examples_of(
            "README.md", (self.root / "README.md").read_text(encoding="utf-8")
        )
        commands = [command for example in readme for command in example.commands]
        script = (self.root / QUICKSTART).read_text(encoding="utf-8")
        self.faults += [
            f"{QUICKSTART}: {reason}"
            for reason in grammar.quickstart_faults(self.grammar, script, commands)
        ]


def all_documents(root):
    files = [
        root / "README.md",
        root / "CONTRIBUTING.md",
        root / "CHANGELOG.md",
        root / "configs/examples/README.md",
        *sorted((root / "docs").rglob("*.md")),
    ]
    return [file.relative_to(root).as_posix() for file in files]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--braid", required=True, type=Path, help="the program")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parents[2], help="of the repository"
    )
    parser.add_argument("--long", action="store_true", help="run the commands marked 'long' too")
    parser.add_argument(
        "--update", action="store_true", help="write the samples of now into the documents"
    )
    parser.add_argument(
        "--show", action="store_true", help="show what the commands print, as they end"
    )
    parser.add_argument("documents", nargs="*", help="as paths below the root (default: all)")
    given = parser.parse_args()
    checker = Checker(
        given.root.resolve(),
        given.braid.resolve(),
        long=given.long,
        update=given.update,
        show=given.show,
    )
    for name in given.documents or all_documents(checker.root):
        checker.document(name)
    if not given.documents:
        checker.whole()
        checker.quickstart()
        checker.index()
    for seconds, place in sorted(checker.slowest, reverse=True)[:3]:
        print(f"{seconds:6.1f} s  {place}")
    print("\n".join(checker.faults))
    print(
        f"{checker.ran} examples ran, {checker.parsed} were parsed, "
        f"{checker.skipped} wait for --long; "
        f"{checker.updated} updated, {len(checker.faults)} differ"
    )
    return 1 if checker.faults else 0


if __name__ == "__main__":
    sys.exit(main())
