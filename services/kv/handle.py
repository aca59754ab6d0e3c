"""The KV handle: what prefill answers, and the checks with which decode accepts it before any block is reserved."""

from __future__ import annotations

from collections.abc import Sequence

from services.common.errors import Incompatible, KvUnavailable
from services.common.wire import KvTransferParams, Layout
from services.kv.checksum import tokens_checksum
from services.kv.lease import Lease


def make_handle(
    lease: Lease,
    *,
    engine_id: str,
    model: str,
    revision: str,
    layout: Layout,
    prompt: Sequence[int],
    lease_url: str,
    host: str | None = None,
    port: int | None = None,
    socket: str | None = None,
) -> KvTransferParams:
    """The handle of a lease; addresses as the puller reaches them.

    `prompt` begins with the tokens whose KV the lease holds.
    """
    return KvTransferParams(
        do_remote_prefill=True,
        remote_engine_id=engine_id,
        remote_block_ids=list(lease.blocks),
        remote_request_id=lease.request_id,
        remote_host=host,
        remote_port=port,
        remote_socket=socket,
        tp_size=layout.tp_size,
        nonce=lease.nonce,
        model=model,
        revision=revision,
        layout=layout.fingerprint,
        num_tokens=lease.num_tokens,
        tokens_checksum=tokens_checksum(prompt[: lease.num_tokens]),
        kv_checksum=lease.kv_checksum,
        lease_url=lease_url,
        expires_at=lease.expires_at,
    )


def verify(
    handle: KvTransferParams, *, model: str, revision: str, layout: Layout, prompt: Sequence[int], now: float
) -> None:
    """Accept a handle for `prompt`, or raise: Incompatible for another model, revision or layout, else KvUnavailable.

    `now` is the Unix time. At least one token of the prompt must be left to compute.
    """
    for name in ("remote_engine_id", "remote_block_ids", "remote_request_id", "nonce", "kv_checksum"):
        if not getattr(handle, name):
            raise KvUnavailable(f"the KV handle has no {name}")
    _check_pair(handle, model, revision, layout)
    who = handle.remote_request_id
    if now >= handle.expires_at:
        raise KvUnavailable(f"the KV handle of {who} expired {now - handle.expires_at:.1f} s ago")
    if not 1 <= handle.num_tokens < len(prompt):
        raise KvUnavailable(f"the KV of {who} holds {handle.num_tokens} tokens, the prompt has {len(prompt)}")
    blocks, needed = len(handle.remote_block_ids or ()), -(-handle.num_tokens // layout.block_size)
    if blocks != needed:
        raise KvUnavailable(f"the KV of {who} has {blocks} blocks; {handle.num_tokens} tokens take {needed}")
    if handle.tokens_checksum != tokens_checksum(prompt[: handle.num_tokens]):
        raise KvUnavailable(f"the KV of {who} was computed from other tokens than the prompt's")


def _check_pair(handle: KvTransferParams, model: str, revision: str, layout: Layout) -> None:
    pairs = (
        ("model", handle.model, model),
        ("revision", handle.revision, revision),
        ("tp_size", handle.tp_size, layout.tp_size),
        ("layout", handle.layout, layout.fingerprint),
    )
    for name, theirs, ours in pairs:
        if theirs != ours:
            raise Incompatible(f"the KV has {name} {theirs}, this worker has {ours}")
