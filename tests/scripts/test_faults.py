"""Pulumi's diagnostics as sentences: what its Kubernetes provider says, as it was seen to say it."""

from __future__ import annotations

import pytest

from scripts.faults import sentence, sentences

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
