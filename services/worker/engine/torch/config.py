"""What an engine is made with; wrong values are refused here, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Fixed while the engine lives; raises ValueError where values contradict each other."""

    model_path: Path
    num_blocks: int  # KV blocks in the pool
    dtype: str = "float32"
    threads: int = 1  # of the matrix work
    block_size: int = 64  # tokens
    max_model_len: int = 8192  # tokens of prompt and answer together
    prefill_max_batch_tokens: int = 2048  # tokens that one step computes at most
    max_running: int = 32  # sequences that hold blocks at once
    max_waiting: int = 64  # requests beyond those
    idle_wait_ms: float = 20.0  # longest sleep of an idle loop
    fetch_threads: int = 4
    native_folder: Path | None = None  # where compiled code is kept; None: nothing is compiled

    def __post_init__(self) -> None:
        for name in ("num_blocks", "threads", "block_size", "max_model_len", "max_running", "fetch_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        if self.max_waiting < 0 or self.idle_wait_ms < 0:
            raise ValueError("max_waiting and idle_wait_ms must not be negative")
        if self.prefill_max_batch_tokens <= self.max_running:
            raise ValueError(
                f"prefill_max_batch_tokens ({self.prefill_max_batch_tokens}) must exceed max_running "
                f"({self.max_running}): each running sequence may need one token of a step, and a prompt the rest"
            )
