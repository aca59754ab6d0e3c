"""The interval is short while anybody is inside, and as it was when the last one has left."""

import sys
import threading

import pytest

from services.kv.transport.brisk import SWITCH_SECONDS, brisk


def test_it_is_restored_by_whoever_leaves_last() -> None:
    usual = sys.getswitchinterval()
    inside, leave = threading.Barrier(2), threading.Event()

    def other() -> None:
        with brisk():
            inside.wait(10)
            leave.wait(10)

    thread = threading.Thread(target=other)
    with brisk():
        thread.start()
        inside.wait(10)
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    leave.set()
    thread.join(10)
    assert sys.getswitchinterval() == usual


def test_an_error_restores_it() -> None:
    usual = sys.getswitchinterval()
    with pytest.raises(RuntimeError), brisk():
        raise RuntimeError
    assert sys.getswitchinterval() == usual
