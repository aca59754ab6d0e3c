"""The pool is shared, sealed, refused where it cannot fit, and gone with its process."""

import fcntl
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from services.kv.pool import AttachedPool, SharedPool, runs

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, time
from services.kv.pool import SharedPool
pool = SharedPool(16, 65536)
pool.array[:] = 7
print("ready", flush=True)
time.sleep(60)
"""


def test_what_one_side_writes_the_other_reads() -> None:
    pool = SharedPool(3, 5000)
    assert not pool.array.any()
    attached = AttachedPool(os.dup(pool.fd), 3, 5000)
    pool.array[1] = 9
    pool.buffer[2 * 5000] = 4
    assert attached.array[1].tolist() == [9] * 5000
    assert attached.array[2, :2].tolist() == [4, 0]
    assert not attached.array.flags.writeable
    pool.close()
    pool.close()


def test_the_view_outlives_the_owner() -> None:
    pool = SharedPool(1, 4096)
    pool.array[0] = 3
    attached = AttachedPool(os.dup(pool.fd), 1, 4096)
    mine = pool.array
    pool.close()
    assert np.array_equal(attached.array, mine)


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
def test_the_descriptor_allows_neither_writing_nor_shrinking() -> None:
    pool = SharedPool(2, 4096)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(pool.fd, 4096)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(pool.fd, b"x", 0)
    with pytest.raises(OSError, match="not permitted"):
        mmap.mmap(pool.fd, 8192, flags=mmap.MAP_SHARED)
    pool.close()


@pytest.mark.parametrize(("num_blocks", "block_bytes"), [(2, 4097), (3, 4096), (0, 4096), (-2, -4096)])
def test_an_attachment_checks_the_size_and_closes_the_descriptor(num_blocks: int, block_bytes: int) -> None:
    pool = SharedPool(2, 4096)
    descriptor = os.dup(pool.fd)
    with pytest.raises(ValueError, match="8192 bytes"):
        AttachedPool(descriptor, num_blocks, block_bytes)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
def test_memory_that_could_shrink_is_not_attached(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))
    unsealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 4096)
    for descriptor in (unsealed, os.open(tmp_path / "file", os.O_RDWR)):
        with pytest.raises(ValueError, match="shrink"):
            AttachedPool(descriptor, 1, 4096)


def test_a_pool_beyond_the_memory_is_refused_at_once() -> None:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(MemoryError, match="make the pool smaller"):
        SharedPool(1 << 20, 1 << 30)
    with pytest.raises(ValueError, match="0 blocks"):
        SharedPool(0, 1)
    assert sys.platform != "linux" or len(os.listdir("/proc/self/fd")) == before


def test_close_gives_the_descriptor_back() -> None:
    pool = SharedPool(4, 1 << 20)
    descriptor = pool.fd
    pool.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        fcntl.fcntl(descriptor, fcntl.F_GETFD)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_process_leaves_nothing() -> None:
    segments = set(os.listdir("/dev/shm"))
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"ready\n"
        maps = Path(f"/proc/{holder.pid}/maps").read_text()
        assert "diphase-kv" in maps
        inode = next(line.split()[4] for line in maps.splitlines() if "diphase-kv" in line)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        holder.stdout.close()
    assert set(os.listdir("/dev/shm")) <= segments
    assert not any(inode in line for line in _lines_of_all_maps())


def _lines_of_all_maps() -> list[str]:
    """The lines of every process's map that name a pool."""
    found = []
    for path in Path("/proc").glob("[0-9]*/maps"):
        try:
            found += [line for line in path.read_text().splitlines() if "diphase-kv" in line]
        except OSError:  # the process has ended meanwhile, or is another user's
            continue
    return found


def test_first_touch_in_the_background_changes_nothing() -> None:
    pool = SharedPool(64, 1 << 18)
    pool.array[:] = np.arange(64, dtype=np.uint8)[:, None]
    pool._prefault.wait(30)
    assert (pool.array == np.arange(64)[:, None]).all()
    pool.close()


def test_runs() -> None:
    assert list(runs([])) == []
    assert list(runs([4])) == [((4,), 1)]
    assert list(runs([4, 5, 6, 2, 1])) == [((4,), 3), ((2,), 1), ((1,), 1)]
    assert list(runs([4, 5, 6, 7], [0, 1, 5, 6])) == [((4, 0), 2), ((6, 5), 2)]
