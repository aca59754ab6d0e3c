"""Pulumi's diagnostics as sentences: what its Kubernetes provider says, as it was seen to say it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from scripts.faults import Holder, sentence, sentences

URN = '"urn:pulumi:dev::diphase::kubernetes:apps/v1:Deployment::deployment/prefill-worker"'
NOT_READY = f"""3 errors occurred:
\t* resource {URN} was successfully created, but the Kubernetes API server reported that it failed to fully initialize \
or become live: 'prefill-worker' timed out waiting to be Ready
\t* Minimum number of live Pods was not attained
\t* [Pod diphase-dev/prefill-worker-6784fc8597-2kbcs]: containers with unready status: [prefill-worker]
"""
UPDATED = f"""1 error occurred:
\t* the Kubernetes API server reported that {URN} failed to fully initialize or become live: it was not ready"""


@pytest.mark.parametrize(
    ("said", "sentence_"),
    [
        (
            NOT_READY,
            "deployment/prefill-worker: 'prefill-worker' timed out waiting to be Ready; Minimum number of live Pods "
            "was not attained; [Pod diphase-dev/prefill-worker-6784fc8597-2kbcs]: containers with unready status: "
            "[prefill-worker]",
        ),
        (UPDATED, "deployment/prefill-worker: it was not ready"),
        ("<{%reset%}>error: it broke\nfor two reasons<{%reset%}>\n", "it broke\nfor two reasons"),
        ("Traceback (most recent call last):\n  …\nKeyError: 'a'", "KeyError: 'a'"),
    ],
)
def test_a_diagnostic_is_a_sentence(said: str, sentence_: str) -> None:
    assert sentence(said) == sentence_


def test_each_fault_is_said_once_and_the_engines_own_words_are_not() -> None:
    assert sentences(["a", "update failed", "a", "b"]) == "a\nb"


def test_a_holder_is_gone_when_it_is_dead_also_before_anybody_has_asked_how_it_ended() -> None:
    def gone(pid: int, host: str = socket.gethostname()) -> bool:
        return Holder("ada", host, pid, "2026-01-01T00:00:00").gone

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not gone(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and kept as a zombie
        assert gone(process.pid)
        assert not gone(process.pid, "elsewhere"), "who knows"
        process.wait(20)
        assert gone(process.pid)
    assert not gone(os.getpid())
