"""Prompts become the ids that transformers gives; long ones do not stall the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from services.common.errors import ContextTooLong
from services.common.settings import SettingsError
from services.gateway.tokenization import LONG_CHARS, Tokenization


def test_equal_to_transformers(model_path: Path, tokenization: Tokenization) -> None:
    reference = AutoTokenizer.from_pretrained(str(model_path))
    for text in ("Hello", "<|im_start|>user\nHi<|im_end|>", "😀 中文 \x00", "word " * (LONG_CHARS // 2)):
        ids = asyncio.run(tokenization.encode(text, add_special_tokens=True))
        assert ids == reference(text)["input_ids"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_bytes_of_tokens_make_the_text(tokenization: Tokenization, text: str) -> None:
    ids = tokenization.tokenizer.encode(text, add_special_tokens=False).ids
    text = tokenization.tokenizer.decode(ids, skip_special_tokens=False)  # this vocabulary lacks a few bytes
    assert b"".join(map(tokenization.token_bytes, ids)).decode(errors="replace") == text


def test_bytes_of_every_token(tokenization: Tokenization) -> None:
    assert all(tokenization.token_bytes(token) for token in range(tokenization.vocab_size))
    assert tokenization.token_bytes(2) == b"<|im_end|>"
    assert tokenization.token_bytes(10**6) == b""


def test_a_long_prompt_leaves_the_loop_free(tokenization: Tokenization) -> None:
    """The loop turns while the prompt is encoded: many times, not once."""

    async def main() -> int:
        text = "Some words to be encoded. " * 20_000
        encoding = asyncio.create_task(tokenization.encode(text, add_special_tokens=False))
        turns = 0
        while not encoding.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert len(await encoding) > 100_000
        return turns

    assert asyncio.run(main()) > 5


def test_what_cannot_fit_is_refused_at_once(tokenization: Tokenization) -> None:
    with pytest.raises(ContextTooLong, match="8192"):
        asyncio.run(tokenization.encode("a" * 3_000_000, add_special_tokens=False))


def test_a_folder_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tokenizer\.json"):
        Tokenization(tmp_path, 8192)
