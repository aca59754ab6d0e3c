"""The errors that cross a process boundary: one tree, the HTTP status and OpenAI's fields on the class.

DiphaseError
├── InvalidRequest 400 ── ContextTooLong
├── Unauthorized 401
├── ModelForbidden 403
├── NotFound 404 ── ModelNotFound
├── MethodNotAllowed 405
├── ClientTooSlow 408
├── KvUnavailable 409
├── Incompatible 409
├── BodyTooLarge 413
├── Saturated 429
├── EngineFailed 500
├── UpstreamFailed 502
├── Absent 503 ── Draining
└── DeadlineExceeded 504

`code` is what programs compare; the message says what happened and what to do about it.
"""

from __future__ import annotations

import msgspec

BUSY = "系统繁忙，请稍后重试 (system busy, please retry later)"


class ErrorBody(msgspec.Struct, omit_defaults=False):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(msgspec.Struct):
    """What every role answers with a status of 400 or more."""

    error: ErrorBody


class DiphaseError(Exception):
    """Any error that a role answers; subclasses fix status, type and code."""

    status = 500
    type = "server_error"
    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def body(self) -> bytes:
        """The error as OpenAI's JSON."""
        return msgspec.json.encode(ErrorResponse(ErrorBody(self.message, self.type, self.param, self.code)))


class InvalidRequest(DiphaseError):
    """The client sent something wrong; the message names it."""

    status, type, code = 400, "invalid_request_error", "invalid_request"


class ContextTooLong(InvalidRequest):
    """Prompt and answer do not fit the model."""

    code = "context_length_exceeded"


class Unauthorized(DiphaseError):
    """No key, or an unknown one."""

    status, type, code = 401, "authentication_error", "invalid_api_key"


class ModelForbidden(DiphaseError):
    """The key may not use this model."""

    status, type, code = 403, "permission_error", "model_not_allowed"


class NotFound(DiphaseError):
    """No such path or object."""

    status, type, code = 404, "invalid_request_error", "not_found"


class ModelNotFound(NotFound):
    """No such model."""

    code = "model_not_found"


class MethodNotAllowed(DiphaseError):
    """The path exists, the method does not."""

    status, type, code = 405, "invalid_request_error", "method_not_allowed"


class ClientTooSlow(DiphaseError):
    """The body did not arrive in time."""

    status, type, code = 408, "invalid_request_error", "request_timeout"


class KvUnavailable(DiphaseError):
    """The KV that a request refers to is gone, expired, altered or out of reach: prefill again."""

    status, type, code = 409, "server_error", "kv_unavailable"


class Incompatible(DiphaseError):
    """Two workers that cannot be paired; the message names what differs."""

    status, type, code = 409, "server_error", "incompatible"


class BodyTooLarge(DiphaseError):
    """The body is over the limit."""

    status, type, code = 413, "invalid_request_error", "body_too_large"


class Saturated(DiphaseError):
    """A queue is full; try again after `retry_after` seconds."""

    status, type, code = 429, "rate_limit_error", "saturated"

    def __init__(self, message: str = BUSY, *, param: str | None = None, retry_after: float | None = 1.0) -> None:
        super().__init__(message, param=param, retry_after=retry_after)


class EngineFailed(DiphaseError):
    """The engine raised; the request may be tried elsewhere."""

    code = "engine_failed"


class UpstreamFailed(DiphaseError):
    """A peer closed the connection, refused it, or answered nonsense."""

    status, code = 502, "upstream_failed"


class Absent(DiphaseError):
    """There is no healthy worker (or scheduler) for this."""

    status, code = 503, "no_healthy_worker"

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = 5.0) -> None:
        super().__init__(message, param=param, retry_after=retry_after)


class Draining(Absent):
    """The worker takes no more requests; ask another."""

    code = "draining"


class DeadlineExceeded(DiphaseError):
    """The request's deadline passed."""

    status, type, code = 504, "timeout_error", "deadline_exceeded"


def _tree(cls: type[DiphaseError]) -> list[type[DiphaseError]]:
    return [cls, *(leaf for sub in cls.__subclasses__() for leaf in _tree(sub))]


_BY_CODE = {cls.code: cls for cls in _tree(DiphaseError)}


def from_response(status: int, body: bytes, peer: str) -> DiphaseError:
    """The error that `peer` answered, as an exception of this tree; UpstreamFailed where it is not one of ours."""
    try:
        error = msgspec.json.decode(body, type=ErrorResponse).error
    except msgspec.MsgspecError:
        return UpstreamFailed(f"{peer} answered {status} without an error object")
    cls = _BY_CODE.get(error.code or "")
    if cls is None or cls.status != status:
        return UpstreamFailed(f"{peer} answered {status}: {error.message}")
    return cls(error.message, param=error.param)


def from_event(error: ErrorBody, peer: str) -> DiphaseError:
    """The error that `peer` sent in the middle of a stream, where no status goes with it."""
    cls = _BY_CODE.get(error.code or "", UpstreamFailed)
    return cls(error.message if cls is not UpstreamFailed else f"{peer}: {error.message}", param=error.param)
