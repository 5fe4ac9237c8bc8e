"""Damages files: JSON by its structure, all others by their bytes."""

import json

NUMBERS = [0, -1, 1, 2, 3, 7, 1e308, -1e308, 1e-308, 1e-300, 5e-324, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64,
           10**30, 0.5, 1e9, 1e18, float("nan"), float("inf"), -0.0]
OTHERS = ["", "x", "nan", "80GiB", "-1GiB", "1e308GB/s", "0GB/s", "\u00e9" * 3, "y" * 400, "\x00", None, True, False, [], {},
          [[]], [None], {"": 0}, [0] * 300]
DEPTH = 200


def places(node, path=()):
    """Paths of all values inside of a JSON value."""
    yield path
    if isinstance(node, dict):
        for key in node:
            yield from places(node[key], (*path, key))
    elif isinstance(node, list):
        for index in range(len(node)):
            yield from places(node[index], (*path, index))


def at(node, path):
    for step in path:
        node = node[step]
    return node


def nested(value):
    for _ in range(DEPTH):
        value = [value]
    return value


def mutate_json(rng, document, donors):
    paths = [path for path in places(document) if path]
    if not paths:
        return rng.choice(OTHERS)
    path = rng.choice(paths)
    parent, last = at(document, path[:-1]), path[-1]
    value = parent[last]
    action = rng.randrange(10)
    if action < 3 and isinstance(value, (int, float)) and not isinstance(value, bool):
        parent[last] = rng.choice([*NUMBERS, value * 2, value + 1, -value, value / 3])
    elif action < 5:
        parent[last] = rng.choice(NUMBERS)
    elif action == 5:
        parent[last] = rng.choice(OTHERS)
    elif action == 6:
        del parent[last]
    elif action == 7:
        parent[last] = nested(value) if rng.random() < 0.1 else [value]
    elif action == 8:
        donor = rng.choice(donors)
        parent[last] = at(donor, rng.choice(list(places(donor))))
    elif isinstance(parent, dict):
        parent[rng.choice([str(last) + "x", "format", "version", ""])] = value
    else:
        parent.insert(rng.randrange(len(parent) + 1), value)
    return document


def mutate_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(data) + 1)
        action = rng.randrange(7)
        if action == 0 and data:
            data[position % len(data)] ^= 1 << rng.randrange(8)
        elif action == 1:
            data[position:position] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif action == 2:
            del data[position : position + rng.randrange(1, 33)]
        elif action == 3:
            del data[position:]
        elif action == 4:
            size = rng.choice([1, 2, 4, 8])
            data[position : position + size] = rng.choice([0, 2**(8 * size) - 1, 2**(8 * size - 1)]).to_bytes(size, "little")
        elif action == 5:
            data[position:position] = rng.choice([b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"{", b"]", b'"', b"1e999", b"\n\n"])
        else:
            data[position:position] = data[: rng.randrange(len(data) + 1)][:4096]
    return bytes(data)


def mutate(rng, name, data, donors):
    """The file's bytes, damaged."""
    if name.endswith(".json") and rng.random() < 0.75:
        try:
            document = json.loads(data)
        except ValueError:
            return mutate_bytes(rng, data)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            document = mutate_json(rng, document, donors)
        return json.dumps(document, indent=rng.choice([None, 1])).encode("utf-8", "replace")
    return mutate_bytes(rng, data)
