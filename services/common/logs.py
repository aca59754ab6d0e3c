"""Structured logs: one JSON object a line on stderr, with the request id where there is one."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from typing import TextIO, cast

import msgspec
import structlog


class _Stderr(io.TextIOBase):
    """Standard error for lines that may get lost: where whoever read it was killed, nothing else must fail."""

    def write(self, text: str) -> int:
        left = memoryview(text.encode(errors="backslashreplace"))
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(2, left) :]
        return len(text)


def _render(_logger: object, _name: str, event: structlog.typing.EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def configure(instance: str, level: str) -> None:
    """Set up logging of the process. Lines carry `time`, `level`, `instance`, `event` and what is bound to them."""

    def name(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["instance"] = instance
        return event

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", key="time"),
        name,
        structlog.processors.format_exc_info,
    ]
    stderr = _Stderr()  # one write a line: threads do not mix theirs
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, _render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, stderr)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render], foreign_pre_chain=shared
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)


def get() -> structlog.typing.FilteringBoundLogger:
    """A logger; `get().info("event", request_id=…)`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger
