"""Figures of paragraphs and tables, and keys of tables, held against JSON that the program prints."""

import fnmatch
import json
import re

import grammar

HOLE = re.compile(r"\{([\w.+-]+)(?::([^}]*))?\}")
FIGURE = r"[-+]?\d+(?:[.,]\d+)*%?"
UNITS = {
    "GiB": (2.0**-30, ".1f"),
    "ms": (1e3, ".2f"),
    "ms.1": (1e3, ".1f"),
    "TFLOP": (1e-12, ".1f"),
}
DOES_NOT_FIT = "does not fit"
EVERYWHERE = {"format", "version"}  # keys of every file


class FigureError(Exception):
    """A note that asks for what is not there."""


def look_up(answer, path):
    """'a.0.b' in an answer, or the sum of several between '+'."""
    if "+" in path:
        return sum(look_up(answer, part) for part in path.split("+"))
    for key in path.split("."):
        try:
            answer = answer[int(key)] if isinstance(answer, list) else answer[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise FigureError(f"the program's JSON has no '{path}'") from None
    return answer


def _format(value, spec):
    if value is None:
        raise FigureError("the program's JSON has null there")
    scale, spec = UNITS.get(spec, (1, spec or ""))
    return format(value * scale if scale != 1 else value, spec)


def fill(template, answer):
    """The template with the answer's figures in its holes."""
    return HOLE.sub(lambda hole: _format(look_up(answer, hole[1]), hole[2]), template)


def _pattern(template):
    """What the document may have where the template stands, with a group for each figure.

    Words may be broken over lines, and '…' stands for the rest of a line.
    """
    parts, at = [], 0
    for hole in HOLE.finditer(template):
        parts += [re.escape(template[at : hole.start()]), f"({FIGURE})"]
        at = hole.end()
    parts.append(re.escape(template[at:]))
    return re.compile(re.sub(r"(\\ )+", r"\\s+", "".join(parts)).replace("…", ".*?"))


def paragraph(lines, templates, answer):
    """The lines of a paragraph with the figures of now."""
    text = "\n".join(lines)
    for template in templates:
        match = _pattern(template).search(text)
        if match is None:
            raise FigureError(f"the document does not say '{template}'")
        for i, hole in reversed(list(enumerate(HOLE.finditer(template), start=1))):
            text = (
                text[: match.start(i)]
                + _format(look_up(answer, hole[1]), hole[2])
                + text[match.end(i) :]
            )
    return text.split("\n")


def row(line, template, answer):
    """A row of a table whose last cell is the template's."""
    cells = line.split("|")
    fits = answer.get("status") != "infeasible"
    cells[-2] = f" {fill(template, answer) if fits else DOES_NOT_FIT} "
    return "|".join(cells)


def row_names(line):
    """The names in the first cell of a row."""
    return grammar.SPAN.findall(line.split("|")[1])


def source_of(text):
    """A command or a file, and a path into its JSON."""
    command, _, path = text.partition(" | ")
    return command.strip(), path.strip()


def tables_of(lines):
    """The tables among the lines of an output, each a list of rows."""
    tables, inside = [], False
    for line in lines:
        if line.startswith("|"):
            tables += [] if inside else [[]]
            tables[-1].append(line)
        inside = line.startswith("|")
    return tables


def _named(line):
    return {word for span in grammar.SPAN.findall(line) for word in re.findall(r"[\w*]+", span)}


def _unnamed(text, keys):
    named = _named(text)
    return [
        key
        for key in sorted(keys - EVERYWHERE)
        if not any(fnmatch.fnmatchcase(key, word) for word in named)
    ]


def row_faults(lines, name, keys):
    """Keys that the row of a name does not name."""
    row_of_name = next((line for line in lines if name in _named(line.split("|")[1])), None)
    if row_of_name is None:
        return [f"the table has no row `{name}`"]
    return [
        f"the row `{name}` does not name the key '{key}'" for key in _unnamed(row_of_name, keys)
    ]


def key_faults(lines, keys):
    """Keys that a table or paragraph does not name, and names in the first column that are none."""
    faults = [f"the key '{key}' is not named" for key in _unnamed(" ".join(lines), keys)]
    for line in lines[2:] if lines[0].startswith("|") else []:
        for word in sorted(_named(line.split("|")[1])):
            if "*" not in word and word not in keys:
                faults.append(f"there is no key '{word}'")
    return faults


def keys_at(value, path):
    """The keys of an object, or of all objects of a list, at a path ('' is the value itself)."""
    value = look_up(value, path) if path else value
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, dict) for item in items):
        raise FigureError(f"no object at '{path}'")
    return {key for item in items for key in item}


def same_json(a, b):
    """Whether two texts are the same JSON; None where one is none."""
    try:
        return json.loads(a) == json.loads(b)
    except ValueError:
        return None
