"""The model's tokenizer: prompts to token ids, off the event loop where it takes long, and token ids to bytes."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokenizers import Tokenizer

from services.common.errors import ContextTooLong
from services.common.settings import SettingsError

LONG_CHARS = 8 * 1024  # above this a prompt is encoded in a thread: on the loop it would stall every stream


class Tokenization:
    """Reads tokenizer.json of a model folder."""

    def __init__(self, model_path: Path, max_model_len: int) -> None:
        file = model_path / "tokenizer.json"
        try:
            self.tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise SettingsError(f"MODEL_PATH: cannot read {file}: {error}") from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab_size = _vocab_size(model_path, self.tokenizer.get_vocab_size(with_added_tokens=True))
        self.special_ids = frozenset(
            index for index, token in self.tokenizer.get_added_tokens_decoder().items() if token.special
        )
        longest = max((len(token) for token in self.tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._max_model_len = max_model_len
        self._max_chars = max_model_len * longest  # a longer text cannot have fewer tokens than the model takes
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenize")
        self._byte_of = _byte_alphabet() if _is_byte_level(self.tokenizer) else None

    async def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids; special tokens that are written out in the text become their ids, as in transformers.

        Raises ContextTooLong for a text that cannot fit, before spending time on it.
        """
        if len(text) > self._max_chars:
            raise ContextTooLong(
                f"the prompt has {len(text)} characters, more than the {self._max_model_len} tokens of this model can "
                "hold: shorten it",
                param="prompt",
            )
        if len(text) <= LONG_CHARS:
            return self._encode(text, add_special_tokens)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._encode, text, add_special_tokens)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        # The batch form lets other threads run meanwhile; the single one holds the interpreter (0.75 s for 1 MB).
        ids: list[int] = self.tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which may be part of a character."""
        piece = self.tokenizer.id_to_token(token_id)
        if piece is None:
            return b""
        if self._byte_of is not None and token_id not in self.special_ids:
            values = [self._byte_of.get(char) for char in piece]
            if None not in values:
                return bytes(value for value in values if value is not None)
        if len(piece) == 6 and piece.startswith("<0x"):
            return bytes([int(piece[3:5], 16)])  # byte fallback of SentencePiece models
        return piece.replace("▁", " ").encode()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _vocab_size(model_path: Path, tokens: int) -> int:
    """Ids that the model knows: its embedding may have more rows than the tokenizer has tokens."""
    try:
        config = json.loads((model_path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"MODEL_PATH: cannot read {model_path / 'config.json'}: {error}") from None
    size = config.get("vocab_size")
    return size if isinstance(size, int) else tokens


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    if tokenizer.decoder is None:
        return False
    decoder = json.loads(tokenizer.decoder.__getstate__())
    return any(part.get("type") == "ByteLevel" for part in (decoder, *decoder.get("decoders", ())))


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary, reversed.

    Printable Latin-1 characters stand for themselves, the other bytes for the characters from 256 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
