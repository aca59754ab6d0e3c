"""What is kept of a finished request: one line in the log, and its figures in the metrics. Never its text."""

from __future__ import annotations

import time

from services.common import logs
from services.common.wire import PromptDetails, Usage
from services.gateway import metrics
from services.gateway.answer import Answer
from services.gateway.job import Job
from services.gateway.life import Life

_log = logs.get()


class Record:
    """Opened when the request's life begins, closed once on every path."""

    def __init__(self, operation: str, job: Job, life: Life, answer: Answer) -> None:
        self._operation, self._job, self._life, self._answer = operation, job, life, answer
        self._started = time.perf_counter()
        self._first = self._last = 0.0

    def step(self) -> None:
        """Tokens have come."""
        self._last = time.perf_counter()
        if not self._first:
            self._first = self._last
            metrics.time_to_first_token.labels(self._operation, self._job.model).observe(self._first - self._started)

    def usage(self) -> Usage:
        """The client's view: the prompt once, however many workers computed it."""
        prompt, answer = len(self._job.prompt), self._answer.tokens
        return Usage(prompt, answer, prompt + answer, PromptDetails(self._life.cached_tokens))

    def close(self, error_code: str) -> None:
        """The request is over; `error_code` is empty where all went well."""
        of = (self._operation, self._job.model)
        now, tokens = time.perf_counter(), self._answer.tokens
        metrics.request_duration.labels(*of, error_code).observe(now - self._started)
        metrics.token_usage.labels(*of, "input").observe(len(self._job.prompt))
        metrics.token_usage.labels(*of, "output").observe(tokens)
        if tokens > 1:
            metrics.time_per_output_token.labels(*of).observe((self._last - self._first) / (tokens - 1))
        _log.info(
            "request_done",
            request_id=self._job.request_id,
            operation=self._operation,
            outcome=error_code or "ok",
            finish_reason=self._answer.finish_reason,
            prompt_tokens=len(self._job.prompt),
            tokens=tokens,
            ttft_ms=round((self._first - self._started) * 1e3, 1) if self._first else None,
            total_ms=round((now - self._started) * 1e3, 1),
            legs=self._life.legs,
            retries=self._life.retries,
        )
