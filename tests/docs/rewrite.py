"""Makes a sample anew from what the program prints, abbreviated where it was abbreviated."""

import json
import re

import compare

NEAR = 0.5  # of the words of two lines that stand for each other
WRAPPED = 65  # columns of a line that may have been broken
CONTINUED = 8  # columns by which the rest of a table's row stands further right
MANY = 15  # new lines in a row that are left out
ROOM = 112  # columns of JSON


class CannotRewrite(Exception):
    """No line of the output stands for a part of the sample."""


def _words(line):
    """What a line says, whatever its figures: words and numbers' places."""
    line = re.sub(r"[█▓▒░▚╲╱┃·─▉▊▋▌▍▎▏]+", " ", line)
    return re.sub(r"\d+(?:\.\d+)?", "#", line).split()


def _overlap(words, others):
    common = sum(min(words.count(word), others.count(word)) for word in set(words))
    return 2 * common / max(1, len(words) + len(others))


def _likeness(a, b):
    """The share of words that two lines have in common; more with the same first word or figures."""
    words, others = _words(a), _words(b)
    if not words and not others:
        return 0.5 if not a.strip() and not b.strip() else 0.0
    share = _overlap(words, others) + 0.1 * _overlap(a.split(), b.split())
    if words and others and words[0] == others[0] != "#":
        share += 0.25
    return 2.0 if a.rstrip() == b.rstrip() and a.strip() else share


def align(sample, output):
    """For each line of a sample without gaps the line of the output that stands for it, or None.

    Lines keep their order, and are the likest in all.
    """
    rows, columns = len(sample), len(output)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    score = [[_likeness(a, b) for b in output] for a in sample]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1])
            if score[i][j] >= NEAR:
                best[i][j] = max(best[i][j], score[i][j] + best[i + 1][j + 1])
    places, j = [], 0
    for i in range(rows):
        place = None
        if best[i][j] > best[i + 1][j]:
            while score[i][j] < NEAR or score[i][j] + best[i + 1][j + 1] < best[i][j]:
                j += 1
            place, j = j, j + 1
        places.append(place)
    return places


def _regions(sample, output):
    """The parts of the output that the sample shows, each as [first, last)."""
    segments = compare.segments_of(sample)
    places = align([line for segment in segments for line in segment], output)
    regions, at = [], 0
    for i, segment in enumerate(segments):
        here = places[at : at + len(segment)]
        at += len(segment)
        found = [place for place in here if place is not None]
        if not segment:
            continue
        if not any(
            line.strip() for line, place in zip(segment, here, strict=True) if place is not None
        ):
            raise CannotRewrite(
                f"nothing in the output is like the part that begins with: {segment[0]}"
            )
        first, last = found[0], found[-1] + 1
        first = 0 if i == 0 else first
        last = len(output) if i == len(segments) - 1 else last
        regions += _without_long_news(first, last, found)
    return regions


def _without_long_news(first, last, found):
    """[first, last) without more than MANY lines in a row that stand for none of the sample's."""
    regions = []
    for place in [*found, last]:
        before = regions[-1][1] if regions else first
        if regions and place - before <= MANY:
            regions[-1][1] = min(place + 1, last)
        elif place < last or not regions:
            regions.append([first if place - before <= MANY else place, min(place + 1, last)])
    return regions


def _indent(line):
    return len(line) - len(line.lstrip())


def _is_prose(line):
    return bool(line.strip()) and "  " not in line.strip()


def _goes_on(line, following):
    """Whether a line continues the one before: further right, or the rest of a sentence."""
    if not following.strip() or not line.strip() or not _indent(line):
        return False
    wrapped = len(line) > WRAPPED and _is_prose(line) and _is_prose(following)
    return _indent(following) >= _indent(line) + CONTINUED or (
        wrapped and _indent(following) == _indent(line)
    )


def _whole_lines(region, output):
    """A region with the title above its first line and the rest of its last one."""
    first, last = region
    if (
        first > 0
        and _indent(output[first])
        and output[first - 1].strip()
        and not _indent(output[first - 1])
    ):
        first -= 1
    head = output[last - 1]
    while last < len(output) and _goes_on(head, output[last]):
        last += 1
    return first, last


def rewrite(sample, output):
    """The sample with the lines that the program prints now."""
    if not any(compare.is_gap(line) for line in sample):
        return output
    gap = next(line for line in sample if compare.is_gap(line))
    shown, at = [], 0
    for first, last in (_whole_lines(region, output) for region in _regions(sample, output)):
        if first > at:
            shown.append(gap)
        shown += output[max(first, at) : last]
        at = max(at, last)
    if at < len(output):
        shown.append(gap)
    return shown


def _flat(value):
    return json.dumps(value, ensure_ascii=False)


def json_lines(value, indent=0, room=ROOM):
    """JSON in lines: what fits on a line stands on one."""
    if not isinstance(value, (dict, list)) or len(_flat(value)) + indent <= room:
        return [_flat(value)]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = []
    for i, key in enumerate(value):
        name = f"{_flat(key)}: " if isinstance(value, dict) else ""
        item = json_lines(
            value[key] if isinstance(value, dict) else key, indent + 2, room - len(name) - 1
        )
        item[0] = name + item[0]
        item[-1] += "," * (i + 1 < len(value))
        lines += ["  " + line for line in item]
    return [opening, *lines, closing]
