"""Makes the engine that the settings ask for, on a KV pool that other processes can map."""

from __future__ import annotations

from services.common.settings import WorkerSettings
from services.kv.pool import SharedPool
from services.worker.engine.protocol import Engine


def build(settings: WorkerSettings) -> tuple[SharedPool, Engine]:
    """The pool and the engine on it; blocks until the model is loaded. Raises ValueError or MemoryError."""
    # Imported here, since importing torch takes seconds and this runs off the event loop.
    from services.worker.engine.torch.config import EngineConfig
    from services.worker.engine.torch.engine import TorchEngine
    from services.worker.engine.torch.layout import block_bytes, layout_of

    layout = layout_of(settings.model_path, settings.dtype, settings.kv_block_size)
    size = block_bytes(layout)
    num_blocks = settings.kv_pool_mib * 1024 * 1024 // size
    longest = -(-settings.max_model_len // settings.kv_block_size)
    if num_blocks < longest:
        needed = -(-longest * size // (1024 * 1024))
        raise ValueError(
            f"KV_POOL_MIB {settings.kv_pool_mib} holds {num_blocks} blocks, one request of MAX_MODEL_LEN "
            f"{settings.max_model_len} takes {longest}: set KV_POOL_MIB to {needed} or more"
        )
    config = EngineConfig(
        model_path=settings.model_path,
        dtype=settings.dtype,
        threads=settings.threads,
        num_blocks=num_blocks,
        block_size=settings.kv_block_size,
        max_model_len=settings.max_model_len,
        prefill_max_batch_tokens=settings.prefill_max_batch_tokens,
        max_running=settings.worker_max_running,
        max_waiting=settings.worker_max_waiting,
        idle_wait_ms=settings.decode_idle_wait_ms,
        native_folder=settings.native_folder,
    )
    pool = SharedPool(num_blocks, size)
    try:
        return pool, TorchEngine(config, pool.buffer)
    except BaseException:
        pool.close()
        raise
