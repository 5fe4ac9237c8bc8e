"""Reads documents: commands, samples of output, and the notes that say how to run them.

A command is an indented block that begins with a program of ours or a launcher; the block between
``` right behind it is its output. Commands of one document share a folder and run in order. A note
is an HTML comment on lines of its own, ahead of the block it speaks of:

    <!-- example: WORDS -->        how the next command is run, words between commas:
                                     long              only with --long
                                     times vary        times, rates and percentages do not count
                                     lines vary        only the first words of lines count
                                     status 3          the exit status, if no sample shows it
                                     parsed, REASON    not run; verb, flags and files exist
                                     not output        the next block shows something else
    <!-- run: COMMAND -->          a command that readers do not see; its sample may follow
    <!-- file: NAME -->            the block is a file: the repository's, or one for later commands
    <!-- figures: SOURCE | TEXT -->  the next paragraph or table has TEXT, with figures of the JSON
                                   in {path:format}; several TEXTs stand between bars
    <!-- rows: SOURCE | TEXT -->   so has the last cell of each row of the next table; {row} is the
                                   first `name` of the row, in a figure the sum of all its names
    <!-- tables: COMMAND -->       the document's tables are those that the command prints
    <!-- keys: SOURCE              the next table's first column, or the paragraph, names the JSON's
         name: SOURCE -->          keys, and the row of `name` those of another SOURCE

A SOURCE is a command or a file, and behind " | " a path into its JSON; SOURCE + SOURCE has the
keys of both. In a TEXT `\\|` is a bar and `…` the rest of a line.
"""

import dataclasses
import re
import shlex

PROGRAM = re.compile(
    r"(\w+=\S+ )*(build/\S+|braid|mpirun|srun|torchrun|scripts/\S+|benchmarks/\S+)( |$)"
)
NOTE = re.compile(r"<!--\s*(?P<kind>\w+):\s*(?P<text>.*?)\s*-->", re.DOTALL)
KINDS = ("example", "run", "file", "figures", "rows", "keys", "tables")
WORDS = ("long", "times vary", "lines vary", "parsed", "not output")


class DocumentError(Exception):
    """A document that does not keep to the convention."""


@dataclasses.dataclass
class Note:
    kind: str
    text: str
    line: int


@dataclasses.dataclass
class Block:
    """Lines [first, last) of a document; `kind` is text, table, command, fence, or note."""

    kind: str
    first: int
    last: int
    lines: list
    language: str = ""
    note: Note = None


@dataclasses.dataclass
class Example:
    """What is run or checked at one place of a document."""

    document: str
    line: int  # counted from 1
    commands: list  # the last one makes the sample
    kind: str = "run"  # run, parsed, file, figures, rows, keys, tables
    sample: Block = None
    long: bool = False
    times_vary: bool = False
    lines_vary: bool = False
    status: int = None
    reason: str = ""
    name: str = ""  # of a file; the source of keys
    rows: dict = dataclasses.field(default_factory=dict)  # sources of keys by row of a table
    templates: list = dataclasses.field(default_factory=list)
    target: Block = None  # the paragraph or the table that has figures
    tables: list = dataclasses.field(default_factory=list)  # of the document


def _note(lines, first):
    last = first
    while "-->" not in lines[last]:
        last += 1
        if last == len(lines):
            raise DocumentError(f"line {first + 1}: a comment without an end")
    match = NOTE.fullmatch("\n".join(lines[first : last + 1]).strip())
    note = Note(match["kind"], match["text"], first + 1) if match else None
    if note and note.kind not in KINDS:
        raise DocumentError(
            f"line {first + 1}: no such note: {note.kind} (there are {', '.join(KINDS)})"
        )
    return Block("note", first, last + 1, lines[first : last + 1], note=note)


def _fence(lines, first):
    last = first + 1
    while lines[last].rstrip() != "```":
        last += 1
        if last == len(lines):
            raise DocumentError(f"line {first + 1}: ``` without an end")
    return Block(
        "fence", first, last + 1, lines[first + 1 : last], language=lines[first][3:].strip()
    )


def _kind_of(lines):
    if all(line.startswith("    ") for line in lines):
        return "command" if PROGRAM.match(lines[0].strip()) else "text"
    return "table" if lines[0].startswith("|") else "text"


def blocks_of(text):
    """The blocks of a document, in order."""
    lines = text.split("\n")
    blocks, i = [], 0
    while i < len(lines):
        if not lines[i].strip():
            i += 1
            continue
        if lines[i].startswith("<!--"):
            blocks.append(_note(lines, i))
        elif lines[i].startswith("```"):
            blocks.append(_fence(lines, i))
        else:
            last = i + 1
            while (
                last < len(lines)
                and lines[last].strip()
                and not lines[last].startswith(("```", "<!--"))
            ):
                last += 1
            blocks.append(Block(_kind_of(lines[i:last]), i, last, lines[i:last]))
        i = blocks[-1].last
    return blocks


def commands_of(lines):
    """The commands of a block: lines that end in a backslash go on."""
    commands = re.sub(r"\\\n\s*", "", "\n".join(line.strip() for line in lines)).split("\n")
    return [
        " ".join(shlex.split(command, comments=True)) and command for command in commands if command
    ]


def _apply_words(example, note):
    words, _, rest = note.text.partition("\n")
    for word in re.split(r",\s*", words + rest):
        if example.kind == "parsed":
            example.reason += ", " * bool(example.reason) + word
        elif word == "long":
            example.long = True
        elif word in ("times vary", "lines vary"):
            setattr(example, word.replace(" ", "_"), True)
        elif word == "parsed":
            example.kind = "parsed"
        elif re.fullmatch(r"status \d+", word):
            example.status = int(word.split()[1])
        else:
            raise DocumentError(
                f"line {note.line}: unknown word '{word}' (there are {', '.join(WORDS)}, status N)"
            )
    if example.kind == "parsed" and not example.reason:
        raise DocumentError(f"line {note.line}: say after 'parsed' why it is not run")


class _Reader:
    def __init__(self, document, text):
        self.document = document
        self.blocks = blocks_of(text)
        self.at = 0
        self.notes = []  # pending `example` notes

    def _next(self, kind):
        """The block of that kind that comes next, or None."""
        if self.at < len(self.blocks) and self.blocks[self.at].kind == kind:
            self.at += 1
            return self.blocks[self.at - 1]
        return None

    def _example(self, line, commands, sample):
        example = Example(self.document, line, commands, sample=sample)
        for note in self.notes:
            _apply_words(example, note)
        self.notes = []
        return example

    def _command(self, block):
        example = self._example(block.first + 1, commands_of(block.lines), self._next("fence"))
        if not PROGRAM.match(example.commands[-1]):
            raise DocumentError(
                f"line {block.first + 1}: not a program of ours: {example.commands[-1]}"
            )
        return example

    def _target(self, note):
        """The table or paragraph that a note speaks of; several notes may speak of one."""
        at = self.at
        while at < len(self.blocks) and self.blocks[at].kind == "note":
            at += 1
        kinds = ("table",) if note.kind == "rows" else ("table", "text")
        return self.blocks[at] if at < len(self.blocks) and self.blocks[at].kind in kinds else None

    def _noted(self, note):
        if note.kind == "run":
            return self._example(note.line, [" ".join(note.text.split())], self._next("fence"))
        if note.kind == "file":
            fence = self._next("fence")
            if fence is None:
                raise DocumentError(f"line {note.line}: no block follows")
            return Example(self.document, note.line, [], kind="file", sample=fence, name=note.text)
        if note.kind == "tables":
            example = self._example(note.line, [" ".join(note.text.split())], None)
            example.kind, example.tables = "tables", [
                block for block in self.blocks if block.kind == "table"
            ]
            return example
        target = self._target(note)
        if target is None:
            raise DocumentError(f"line {note.line}: no table or paragraph follows")
        example = self._example(note.line, [], None)
        example.kind, example.target = note.kind, target
        if note.kind == "keys":
            sources = re.split(r"\n\s*(\w+): ", note.text)
            example.name = " ".join(sources[0].split())
            example.rows = dict(
                zip(
                    sources[1::2],
                    [" ".join(source.split()) for source in sources[2::2]],
                    strict=True,
                )
            )
            return example
        command, *templates = [" ".join(part.split()) for part in re.split(r"\s\|\s", note.text)]
        templates = [template.replace("\\|", "|") for template in templates]
        example.commands = [command]
        example.templates = templates
        return example

    def examples(self):
        while self.at < len(self.blocks):
            block = self.blocks[self.at]
            self.at += 1
            if block.kind == "note" and block.note and block.note.kind == "example":
                if block.note.text == "not output":
                    self._next("fence")
                else:
                    self.notes.append(block.note)
            elif block.kind == "note" and block.note:
                yield self._noted(block.note)
            elif block.kind == "command":
                yield self._command(block)
            elif block.kind == "fence" and block.language in ("", "json"):
                raise DocumentError(
                    f"line {block.first + 1}: a sample without a command; put one above it, or a note "
                    "as <!-- run: COMMAND --> or <!-- file: NAME -->"
                )


def examples_of(document, text):
    """The examples of a document, in order."""
    return list(_Reader(document, text).examples())


def prose_of(text):
    """A document without its blocks of code and notes."""
    lines = text.split("\n")
    for block in blocks_of(text):
        if block.kind in ("fence", "note", "command"):
            lines[block.first : block.last] = [""] * (block.last - block.first)
    return "\n".join(lines)
