"""Links lead to files and headings that exist, and lists of folders are in the include order."""

import re

LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(
    r"(?:planner|runtime|cli|tests|scripts|benchmarks|configs|schemas|docs)/[a-z0-9_./*-]*[\w/]"
)
CHAIN = re.compile(r"\w+(?:\s+→\s+\w+)+")
ELSEWHERE = ("http://", "https://", "mailto:")


def anchor_of(heading):
    """The anchor that GitHub gives a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors_of(text):
    """The anchors of a document; equal headings are numbered."""
    anchors, seen = set(), {}
    for heading in re.findall(
        r"^#+ (.+)$",
        re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL),
        flags=re.MULTILINE,
    ):
        anchor = anchor_of(heading)
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def faults(root, name, text):
    """Links of a document that lead nowhere, as (line, reason)."""
    found = []
    for match in LINK.finditer(text):
        link = match[1]
        if link.startswith(ELSEWHERE):
            continue
        path, _, anchor = link.partition("#")
        target = (root / name).parent / path if path else root / name
        line = text.count("\n", 0, match.start()) + 1
        if not target.exists():
            found.append((line, f"the link {link} leads to no file"))
        elif anchor and anchor not in anchors_of(target.read_text(encoding="utf-8")):
            found.append((line, f"the link {link} leads to no heading"))
    return found


def path_faults(root, text):
    """Files of the repository in `code` that do not exist, as (line, reason); `*` stands for any."""
    found = []
    for match in re.finditer(r"`([^`\n]+)`(?! \(now)", text):
        for word in match[1].split():
            if PATH.fullmatch(word) and not any(root.glob(word.rstrip("/"))):
                found.append((text.count("\n", 0, match.start()) + 1, f"there is no {word}"))
    return found


def unlisted(root, index):
    """Documents beside and below an index that it does not link to, and numbers that two have."""
    folder = (root / index).parent
    linked = {
        (folder / link.partition("#")[0]).resolve()
        for link in LINK.findall((root / index).read_text(encoding="utf-8"))
    }
    found, numbers = [], {}
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).as_posix()
        if path.resolve() not in linked and path != root / index:
            found.append(f"{index} does not link to {name}")
        number = re.match(r"\d{4}(?=-)", path.name)
        if number and numbers.setdefault(number[0], name) != name:
            found.append(f"{numbers[number[0]]} and {name} have one number")
    return found


def order_faults(text, orders):
    """Chains 'a → b → c' of folders that are not one of the orders, as (line, reason)."""
    known = {folder for order in orders for folder in order}
    found = []
    for match in CHAIN.finditer(text):
        chain = re.split(r"\s+→\s+", match[0])
        if len(chain) > 2 and len(known & set(chain)) > 2 and chain not in orders:
            found.append(
                (
                    text.count("\n", 0, match.start()) + 1,
                    f"not the include order: {' → '.join(chain)}",
                )
            )
    return found
