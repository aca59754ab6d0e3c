"""Enters a mapping's pages in the page table in the background, so that no request pays for the first touch of a page.

A page that is written for the first time costs a microsecond, several on a virtual machine whose memory the host still
has to find: measured, 2 to 6 ms for a block of 3 MB, as much as its copy. Doing it all before the start would hold
the start up for as long as the whole pool takes.
"""

from __future__ import annotations

import ctypes
import sys
import threading

import numpy as np
from numpy.typing import NDArray

_MADV_POPULATE_WRITE = 23  # Linux 5.14, <linux/mman.h>; Python has no name for it yet
_PIECE = 4 << 20  # bytes: the kernel holds the address space's lock for a millisecond or so, not longer


class Prefault:
    """Works on the memory of an array from construction until done or stopped. The content is not changed."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self._array = array
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kv-prefault", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let go of the array; idempotent."""
        self._stopping.set()
        self._thread.join()
        self._array = np.empty(0, np.uint8)

    def wait(self, timeout: float) -> None:
        """Return when all pages are entered, or after `timeout` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        if sys.platform != "linux":
            return
        madvise = ctypes.CDLL(None).madvise  # through ctypes it runs without the GIL
        madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        address, size = self._array.ctypes.data, self._array.nbytes
        for start in range(0, size, _PIECE):
            length = min(_PIECE, size - start)
            if self._stopping.is_set() or madvise(address + start, length, _MADV_POPULATE_WRITE):
                return  # refused: an older kernel, where the first touch does it after all
