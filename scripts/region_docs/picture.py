"""Resources as a Mermaid flowchart: a box for each component, with what it is made of; arrows for what waits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from scripts.region_docs.declared import Declared

COMPONENT = "diphase:aws:"


def mermaid(resources: Sequence[Declared]) -> str:
    """The flowchart. Components inside components are drawn as part of the outermost."""
    known = {one.urn: one for one in resources}
    boxes: dict[str, Counter[str]] = {}
    for one in resources:
        box = _box(one, known)
        if box and not one.type.startswith(COMPONENT):
            boxes.setdefault(box, Counter())[one.type.rpartition(":")[2]] += 1
    lines = ["flowchart LR", *_boxes(boxes), *_arrows(resources, known)]
    return "\n".join(lines) + "\n"


def _boxes(boxes: dict[str, Counter[str]]) -> Iterator[str]:
    for box, kinds in sorted(boxes.items()):
        parts = [f"{kind} × {count}" if count > 1 else kind for kind, count in sorted(kinds.items())]
        yield f'    {box}["<b>{box}</b><br>{"<br>".join(parts)}"]'


def _arrows(resources: Sequence[Declared], known: dict[str, Declared]) -> Iterator[str]:
    """From what must be there to what waits for it."""
    pairs = {(_box(known[need], known), _box(one, known)) for one in resources for need in one.waits if need in known}
    yield from (f"    {first} --> {then}" for first, then in sorted(pairs) if first and then and first != then)


def _box(one: Declared, known: dict[str, Declared]) -> str:
    """The name of the outermost component around a resource, or of itself."""
    found = one.type.removeprefix(COMPONENT) if one.type.startswith(COMPONENT) else ""
    return (_box(known[one.parent], known) if one.parent in known else "") or found
