"""Compares what a program prints with the sample in a document."""

import re

# Lines that come by the clock: progress, written to standard error.
PROGRESS = re.compile(
    r"braid: (?:\d+ of \d+ configurations|(?:\d+ ?(?:h|min|m|s) ?)+: )|\[[#.]+\] +\d+/\d+ "
)
STEP = re.compile(r"step +\d+/\d+ ")
# Times of the search itself, whatever else is compared.
CLOCKS = [
    re.compile(r"(?<=found in )[\d.]+ (ns|us|ms|s)\b"),
    re.compile(r"(?<=· )[\d.]+ (us|ms|s) \([\d.]+ (us|ms|s) CPU\)"),
]
NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
# Figures of the machine: times, rates, percentages, ratios.
MACHINE = re.compile(
    rf"{NUMBER}k? ?(?:(?:ns|us|ms|s|%|times|[KMGT]?B/s|samples/s|tok/s|[KMGT]?FLOP/s)(?!\w)"
    r"|K tokens/s)"
    rf"|\d+m\d+s|{NUMBER}(?=$)|[█▉▊▋▌▍▎▏]+"
)
SECONDS = re.compile(r"[\d.]+ (ms|s)\b")
DECIMAL = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")
WIDTH = 80  # columns of an answer in a pipe
TOLERANCE = (
    0.02  # relative, of decimals where times vary: losses differ by rounding between machines
)


def is_gap(line):
    return line.strip() == "…"


def clean(text, sample):
    """The lines of an output, without progress and empty lines at either end.

    Of a run's steps those of the sample are left: after ten seconds without one the program shows
    a step that was not asked for.
    """
    lines = [line.rstrip() for line in text.replace("\r", "\n").split("\n")]
    lines = [line for line in lines if not PROGRESS.match(line)]
    steps = {match[0] for match in map(STEP.match, sample) if match}
    if steps:
        lines = [line for line in lines if not STEP.match(line) or STEP.match(line)[0] in steps]
    return "\n".join(lines).strip("\n").split("\n")


def _mask_clocks(line):
    for clock in CLOCKS:
        line = clock.sub("#", line)
    return line


def label(line):
    """The words that a line begins with."""
    return re.split(r"  +|\d|×|:", line.strip().removeprefix("braid: "))[0].strip()


def _close(a, b):
    return abs(float(a) - float(b)) <= TOLERANCE * max(abs(float(a)), abs(float(b)))


def same_but_times(sample, line):
    sample, line = (" ".join(MACHINE.sub("#", text).split()) for text in (sample, line))
    here, there = DECIMAL.findall(sample), DECIMAL.findall(line)
    if DECIMAL.sub("#", sample) != DECIMAL.sub("#", line):
        return False
    return all(_close(a, b) for a, b in zip(here, there, strict=True))


def same_row(row, other):
    """Whether two rows of printed tables are the same, but for seconds: those are of a search."""
    return SECONDS.sub("#", row) == SECONDS.sub("#", other)


def line_test(example):
    """A function that says whether a line of a sample stands for a line of output."""
    if example.lines_vary:
        return lambda sample, line: label(sample) == label(line)
    if example.times_vary:
        return same_but_times
    return lambda sample, line: _mask_clocks(sample.rstrip()) == _mask_clocks(line)


def segments_of(sample):
    """The runs of lines between gaps; an empty one stands before a first and behind a last gap."""
    segments = [[]]
    for line in sample:
        if is_gap(line):
            segments.append([])
        else:
            segments[-1].append(line)
    return segments


def _fits(segment, output, at, same):
    return at + len(segment) <= len(output) and all(
        same(a, b) for a, b in zip(segment, output[at:], strict=False)
    )


def _closest(segment, output, start, same):
    """How far a segment comes at its best, as words."""

    def matched(at):
        count = 0
        while (
            count < len(segment)
            and at + count < len(output)
            and same(segment[count], output[at + count])
        ):
            count += 1
        return count

    best = max(range(start, len(output) + 1), key=lambda at: (matched(at), -at), default=start)
    count = matched(best)
    now = output[best + count] if best + count < len(output) else "(the output ends)"
    if count == 0:
        words = set(segment[0].split())
        now = max(
            output[start:] or ["(the output ends)"], key=lambda line: len(words & set(line.split()))
        )
    shown = segment[count] if count < len(segment) else "(an end)"
    return f"the document has  {shown}\nthe program now   {now}"


def _lines_vary_fault(sample, output):
    """Labels of the sample's lines come in the same order; lines that begin with a figure are free."""
    at = 0
    for line in sample:
        words = label(line)
        if is_gap(line) or not words or PROGRESS.match(line):
            continue
        found = next((i for i in range(at, len(output)) if label(output[i]) == words), None)
        if found is None:
            return f"the document has  {line}\nthe program has no line '{words} …' there"
        if len(line) > WIDTH >= len(output[found]):
            return f"the document has  {line}\nthe program fits it into {WIDTH} columns"
        at = found + 1
    return None


def fault(example, sample, output):
    """Why a sample is not what was printed, as text, or None. A line '…' stands for any lines."""
    if example.lines_vary:
        return _lines_vary_fault(sample, output)
    same = line_test(example)
    segments = segments_of(sample)
    at = 0
    for i, segment in enumerate(segments):
        last = i == len(segments) - 1
        starts = (
            [at]
            if i == 0
            else [len(output) - len(segment)] if last and segment else range(at, len(output) + 1)
        )
        found = next(
            (start for start in starts if start >= at and _fits(segment, output, start, same)), None
        )
        if found is None:
            return _closest(segment, output, at, same)
        at = found + len(segment)
        if last and segment and at != len(output):
            return f"the document ends; the program goes on  {output[at]}"
    return None
