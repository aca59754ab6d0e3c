"""An error keeps its kind from one process to the next."""

import msgspec
import pytest

from services.common import errors


def _leaves(cls: type[errors.DiphaseError]) -> list[type[errors.DiphaseError]]:
    return [cls, *(leaf for sub in cls.__subclasses__() for leaf in _leaves(sub))]


@pytest.mark.parametrize("cls", _leaves(errors.DiphaseError))
def test_round_trip(cls: type[errors.DiphaseError]) -> None:
    error = cls("what happened", param="prompt")
    again = errors.from_response(error.status, error.body(), "http://peer")
    assert type(again) is cls
    assert (again.message, again.param) == ("what happened", "prompt")


def test_codes_are_unique() -> None:
    classes = _leaves(errors.DiphaseError)
    assert len({cls.code for cls in classes}) == len(classes)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": "text"}', b'{"detail": 1}'])
def test_a_foreign_answer_is_an_upstream_failure(body: bytes) -> None:
    error = errors.from_response(500, body, "http://peer")
    assert isinstance(error, errors.UpstreamFailed)
    assert "http://peer" in error.message


def test_openai_shape() -> None:
    body = msgspec.json.decode(errors.Saturated().body())
    assert body == {"error": {"message": errors.BUSY, "type": "rate_limit_error", "param": None, "code": "saturated"}}
