"""The verbs and flags of braid, as its help lists them, against the commands in documents."""

import json
import os
import re
import shlex
import shutil
import subprocess

SPAN = re.compile(r"`([^`]+)`")
VALUE = re.compile(r"[a-z0-9][a-z0-9_:-]*")
FLAG = re.compile(r"--[a-z][a-z0-9-]*")
FORMER = re.compile(r"\b(was|were|had)\s+(`[^`]+`,\s+)?$")
OURS = ("configs/", "tests/", "benchmarks/", "scripts/", "docs/")  # files of the repository
LAUNCHERS = ("mpirun", "srun", "torchrun")
# Flags of other programs that documents name by themselves.
FOREIGN = {"--preset", "--help", "--version", "--gpu-bind"}


class Grammar:
    def __init__(self, program):
        text = subprocess.run(
            [program, "help", "--format", "json"], capture_output=True, check=True, text=True
        ).stdout
        self.verbs = {}
        self._add(json.loads(text))

    def _add(self, verb):
        for below in verb.get("verbs", []):
            self._add(below)
        self.verbs[verb["verb"].removeprefix("braid").strip()] = verb["options"]

    def flags(self, verb):
        """Of a verb and the verbs below it."""
        return {
            flag
            for name, options in self.verbs.items()
            if name == verb or name.startswith(verb + " ")
            for option in options
            for flag in option["flags"]
            if flag.startswith("--")
        }

    def all_flags(self):
        return {flag for verb in self.verbs for flag in self.flags(verb)}

    def verb_of(self, words):
        """The verb that words begin with, or None, and how many words it has."""
        for count in (2, 1):
            if len(words) >= count and " ".join(words[:count]) in self.verbs:
                return " ".join(words[:count]), count
        return None, 0

    def fault(self, words, whole):
        """Why words behind 'braid' are no command, or None. A whole one has all that is required."""
        if not words or words[0].startswith("-"):
            known = self.flags("") | {"-h", "-V"}
            return next((f"no flag '{word}'" for word in words if word not in known), None)
        verb, count = self.verb_of(words)
        if verb is None:
            return f"no verb '{words[0]}'" if words[0] not in ("VERB", "…") else None
        options = {flag: option for option in self.verbs[verb] for flag in option["flags"]}
        given, i = set(), count
        while i < len(words):
            name = words[i].split("=")[0]
            i += 1
            if not name.startswith("--"):
                given.add("positional")
                continue
            if name not in options and name not in self.flags(verb):
                return f"'braid {verb}' has no flag '{name}'"
            given.add(name)
            option = options.get(name, {"takes_value": True})
            if option["takes_value"] and "=" not in words[i - 1]:
                if i >= len(words) and whole:
                    return f"'{name}' of 'braid {verb}' needs a value"
                i += 1
        return self._missing(verb, given) if whole else None

    def _missing(self, verb, given):
        for option in self.verbs[verb]:
            if (
                option["required"]
                and not given & set(option["flags"])
                and not ("word" in option and "positional" in given)
            ):
                name = option["flags"][-1] if option["flags"] else option["word"]
                return f"'braid {verb}' needs {name}"
        return None


def words_of(command):
    """The words of a command's first program, up to a pipe or a redirection."""
    words = shlex.split(command, comments=True)
    for i, word in enumerate(words):
        if word in ("|", ">", "&&") or word.startswith(">"):
            return words[:i]
    return words


def absent_filter(command):
    """A program behind a pipe of the command that this machine lacks, or None."""
    return next(
        (name for name in re.findall(r"\| (\w+)", command) if shutil.which(name) is None), None
    )


def command_fault(grammar, root, command):
    """Why a command of a document cannot be run as it stands, or None."""
    words = words_of(command)
    missing = next(
        (word for word in words if word.startswith(OURS) and not (root / word).exists()), None
    )
    if missing:
        return f"there is no {missing}"
    while re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    program = next((i for i, word in enumerate(words) if os.path.basename(word) == "braid"), None)
    if program is not None and (program == 0 or words[0] in LAUNCHERS):
        return grammar.fault(words[program + 1 :], whole=True)
    if words[0].startswith(("scripts/", "benchmarks/")):
        return _script_fault(root, words)
    return None


def _script_fault(root, words):
    path = root / words[0]
    if not os.access(path, os.X_OK):
        return f"{words[0]} cannot be run"
    text = path.read_text(encoding="utf-8", errors="replace")
    if words[0] == "scripts/test":
        return None  # its arguments are ctest's
    return next(
        (
            f"{words[0]} has no flag '{word}'"
            for word in words[1:]
            if FLAG.fullmatch(word) and word not in text
        ),
        None,
    )


def script_flags(root):
    """Every flag that the source of a script names."""
    return {
        flag
        for folder in ("scripts", "benchmarks", "tests/docs")
        for path in (root / folder).iterdir()
        if path.is_file()
        for flag in FLAG.findall(path.read_text(encoding="utf-8", errors="replace"))
    }


def span_faults(grammar, foreign, prose):
    """Verbs and flags in `code` that do not exist; after 'was', 'were', 'had' names are former."""
    faults = []
    for match in SPAN.finditer(prose):
        if FORMER.search(prose[: match.start()]):
            continue
        span = " ".join(match[1].split())
        words = span.split()
        line = prose.count("\n", 0, match.start()) + 1
        if words and os.path.basename(words[0]) == "braid":
            reason = grammar.fault([word for word in words[1:] if word != "…"], whole=False)
        elif words and FLAG.match(words[0]):
            known = grammar.all_flags() | foreign
            reason = next(
                (
                    f"no program has a flag '{flag}'"
                    for flag in FLAG.findall(span)
                    if flag not in known
                ),
                None,
            )
        else:
            continue
        if reason:
            faults.append((line, f"`{span}`: {reason}"))
    return faults


def sections_of(text):
    """The sections '## verb' or '## verb, verb' of a document, by verb."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {
        verb: section
        for names, section in zip(parts[1::2], parts[2::2], strict=True)
        for verb in names.split(", ")
    }


def unlisted(grammar, text):
    """Verbs without a section, and flags that it does not name, nor one its table refers to."""
    sections = sections_of(text)
    faults = []
    for verb in sorted({name.split(" ")[0] for name in grammar.verbs} - {""}):
        if verb not in sections:
            faults.append(f"no section '## {verb}'")
            continue
        section = sections[verb]
        referred = [
            sections.get(name, "")
            for line in section.split("\n")
            if line.startswith("|")
            for name in re.findall(r"\]\(#(\w+)\)", line)
        ]
        known = set(FLAG.findall("\n".join([section, *referred])))
        faults += [
            f"section '## {verb}' does not name {flag}"
            for flag in sorted(grammar.flags(verb) - known - {"--help"})
        ]
    return faults


def named_values(text):
    """The values that the help of a flag lists: 'exact (default), bmw, or a baseline: dp, tp'."""
    parts = re.split(r"[,;]| or ", re.sub(r"\([^)]*\)", "", text))
    # 'bf16: what it is' and 'a baseline: dp' have a value on either side.
    words = [next(filter(VALUE.fullmatch, map(str.strip, part.split(": "))), "") for part in parts]
    return set(words) - {""}


def value_faults(grammar, text):
    """Values of flags that the rows of commands.md list and the help does not, or the reverse."""
    faults = []
    sections = sections_of(text)
    for verb in sorted(grammar.verbs):
        for option in grammar.verbs[verb]:
            values = named_values(option["text"]) if option.get("type") == "NAME" else set()
            flag = option["flags"][-1] if option["flags"] else ""
            for line in sections.get(verb.split(" ")[0], "").split("\n"):
                cells = line.split("|")
                if len(cells) < 3 or FLAG.findall(cells[1]) != [flag] or len(values) < 2:
                    continue
                listed = {span for span in SPAN.findall(cells[2]) if VALUE.fullmatch(span)}
                if len(listed) > 1 and listed != values:
                    faults.append(
                        f"section '## {verb}' lists {', '.join(sorted(listed))} for {flag}, "
                        f"its help {', '.join(sorted(values))}"
                    )
    return faults


def statuses_of(text):
    """The exit statuses of 'braid --help'."""
    return {int(number) for number in re.findall(r"\b\d+\b", text[text.index("Exit status:") :])}


def listed_statuses(text):
    """Those of a table 'status | meaning'."""
    rows = re.search(r"^\| status \|.*\n\|.*\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    return (
        {
            int(number)
            for row in rows[1].splitlines()
            for number in re.findall(r"\d+", row.split("|")[1])
        }
        if rows
        else set()
    )


def script_commands(text):
    """The commands of ours in a shell script, as words, with variables that are plain words."""
    values = dict(re.findall(r"^(\w+)=([\w./-]+)$", text, flags=re.MULTILINE))
    joined = re.sub(r"\\\n\s*", "", text)
    for line in re.findall(r"^(?:show |\w+=\$\()?(build/braid .+)$", joined, flags=re.MULTILINE):
        filled = re.sub(
            r"\$(\w+)", lambda name: values.get(name[1], name[0]), re.sub(r" \|\| .*", "", line)
        )
        yield shlex.split(filled)


def quickstart_faults(grammar, script, readme_commands):
    """Why the quickstart does not run what the README shows, or what the program takes."""
    commands = list(script_commands(script))
    faults = [
        f"{reason}: {' '.join(words)}"
        for words in commands
        if (reason := grammar.fault(words[1:], whole=True))
    ]
    shown = [
        words[: words.index("--metrics")]
        for words in map(words_of, readme_commands)
        if "--metrics" in words
    ]
    if not shown or not all(
        any(words[: len(wanted)] == wanted for words in commands) for wanted in shown
    ):
        faults.append("the README shows a command with --metrics that the quickstart does not run")
    return faults
