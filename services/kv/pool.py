"""The memory that holds a worker's KV: one anonymous shared mapping, and the read-only view that another process has.

Nothing names the memory, so the kernel takes it back when the last process that maps it ends, however it ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.kv.prefault import Prefault

Bytes = NDArray[np.uint8]  # [num_blocks, block_bytes]

_F_SEAL_FUTURE_WRITE = 0x0010  # Linux 5.1, <linux/fcntl.h>; Python has no name for it yet
_LIMITS = (  # files with the memory limit of a container, in bytes
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class SharedPool:
    """`num_blocks` blocks of `block_bytes` bytes, all zero at first.

    Raises MemoryError where there is no room: the memory is allocated here and now, so a pool
    that is too large fails at start and not at the first write to a page.
    On Linux the size is sealed, and whoever receives `fd` can map it for reading only.
    """

    def __init__(self, num_blocks: int, block_bytes: int) -> None:
        if num_blocks < 1 or block_bytes < 1:
            raise ValueError(f"a pool of {num_blocks} blocks of {block_bytes} bytes")
        self.num_blocks = num_blocks
        self.block_bytes = block_bytes
        size = num_blocks * block_bytes
        available = _available_bytes()
        if size > available:
            raise MemoryError(f"the KV pool needs {_mib(size)} and {_mib(available)} are free: make the pool smaller")
        self.fd = _anonymous_file()
        try:
            _allocate(self.fd, size)
            self._map: mmap.mmap | None = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED)
            _seal(self.fd)
        except OSError as error:
            os.close(self.fd)
            raise MemoryError(f"no KV pool of {_mib(size)}: {error.strerror}") from error
        self.buffer = memoryview(self._map)
        self.array: Bytes = np.frombuffer(self._map, np.uint8).reshape(num_blocks, block_bytes)
        self._prefault = Prefault(self.array)

    def close(self) -> None:
        """Unmap. Where somebody still holds a view of the memory, it goes when the last view does. Idempotent."""
        if self._map is None:
            return
        self._prefault.stop()
        with contextlib.suppress(BufferError):
            self.buffer.release()
        self.array = np.empty((0, self.block_bytes), np.uint8)
        _unmap(self._map)
        self._map = None
        os.close(self.fd)


class AttachedPool:
    """Another process's pool, read-only. Takes over `fd` and closes it; raises ValueError if the sizes do not fit."""

    def __init__(self, fd: int, num_blocks: int, block_bytes: int) -> None:
        self.num_blocks = num_blocks
        self.block_bytes = block_bytes
        try:
            size = os.fstat(fd).st_size
            if num_blocks < 1 or size != num_blocks * block_bytes:
                raise ValueError(f"the peer's pool has {size} bytes, not {num_blocks} times {block_bytes}")
            if not _size_is_sealed(fd):
                raise ValueError("the peer's pool could shrink while it is read")
            mapping = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        # The array alone keeps the mapping: it is unmapped when the last reader lets go, not while one still copies.
        self.array: Bytes = np.frombuffer(mapping, np.uint8).reshape(num_blocks, block_bytes)


def runs(*ids: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Where the sequences, equally long, all count upwards by one: their first values, and how many values there are.

    Neighbouring blocks are one piece of memory: one operation, and one wait for the GIL, for all of them.
    """
    start = 0
    for end in range(1, len(ids[0]) + 1):
        if end == len(ids[0]) or any(one[end] != one[end - 1] + 1 for one in ids):
            yield tuple(one[start] for one in ids), end - start
            start = end


def _anonymous_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("diphase-kv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        fd, path = tempfile.mkstemp(prefix="diphase-kv-")
        os.unlink(path)
        return fd


def _allocate(fd: int, size: int) -> None:
    os.ftruncate(fd, size)
    if hasattr(os, "posix_fallocate"):  # not on macOS
        os.posix_fallocate(fd, 0, size)


def _seal(fd: int) -> None:
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        with contextlib.suppress(OSError):  # an older kernel; the nonce and the checksum still guard the bytes
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)


def _size_is_sealed(fd: int) -> bool:
    if sys.platform == "linux":
        import fcntl

        try:
            return bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
        except OSError:  # not a memfd
            return False
    else:
        return True  # there are no seals


def _unmap(mapping: mmap.mmap) -> None:
    with contextlib.suppress(BufferError):  # a view is still held
        mapping.close()


def _available_bytes() -> int:
    """Memory that can be had now; asked first, because the kernel would rather kill than refuse."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.extend(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # absent, or the word "max"
            found.append(int(path.read_text()))
    return min(found, default=sys.maxsize)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
