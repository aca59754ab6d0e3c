"""Which name servers the world finds for a domain: one question of DNS (RFC 1035), of the machine's own resolver."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

NS, INTERNET, RECURSE = 2, 1, 0x0100
PORT, SECONDS, TRIES, MOST_BYTES = 53, 3.0, 2, 4096
POINTER, MOST_POINTERS = 0xC0, 16


def resolver(file: Path = Path("/etc/resolv.conf")) -> tuple[str, int] | None:
    """The address of the first resolver; None where the machine names none."""
    try:
        words = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    return next(((line[1], PORT) for line in words if len(line) > 1 and line[0] == "nameserver"), None)


def name_servers(domain: str, server: tuple[str, int] | None) -> list[str] | None:
    """The names of a domain's servers, none where it has none; None where nobody answered."""
    if server is None:
        return None
    number = int.from_bytes(os.urandom(2))
    question = struct.pack("!6H", number, RECURSE, 1, 0, 0, 0) + _encoded(domain) + struct.pack("!2H", NS, INTERNET)
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.settimeout(SECONDS)
        for _ in range(TRIES):
            try:
                asked.connect(server)
                asked.send(question)
                answer = asked.recv(MOST_BYTES)
                if int.from_bytes(answer[:2]) == number:
                    return sorted(_read(answer))
            except (OSError, struct.error, IndexError, UnicodeDecodeError):
                continue
    return None


def _encoded(domain: str) -> bytes:
    labels = [part.encode("ascii") for part in domain.rstrip(".").split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _read(message: bytes) -> list[str]:
    _, flags, questions, answers, _, _ = struct.unpack_from("!6H", message)
    if flags & 0xF not in (0, 3):  # neither an answer nor "no such name"
        raise struct.error(f"the resolver failed with code {flags & 0xF}")
    place = 12
    for _ in range(questions):
        place = _name(message, place)[1] + 4
    found = []
    for _ in range(answers):
        place = _name(message, place)[1]
        kind, _, _, length = struct.unpack_from("!2HIH", message, place)
        place += 10
        if kind == NS:
            found.append(_name(message, place)[0])
        place += length
    return found


def _name(message: bytes, place: int) -> tuple[str, int]:
    """The name that begins at a place, and where what follows begins."""
    labels: list[str] = []
    after: int | None = None
    for _ in range(MOST_POINTERS * 8):
        length = message[place]
        if length & POINTER == POINTER:
            after = place + 2 if after is None else after
            place = struct.unpack_from("!H", message, place)[0] & 0x3FFF
        elif length == 0:
            return ".".join(labels).lower(), place + 1 if after is None else after
        else:
            labels.append(message[place + 1 : place + 1 + length].decode("ascii"))
            place += 1 + length
    raise struct.error("the name does not end")
