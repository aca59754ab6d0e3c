"""Token ids back to text as they come: never half a character, never past a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """The text of a growing list of tokens. All pieces together are what decoding all tokens at once gives."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._chars = 0  # of text given out

    def feed(self, token_id: int) -> str:
        """The text that is whole with this token; empty where a character is still incomplete."""
        self._ids.append(token_id)
        piece: str = self._stream.step(self._tokenizer, token_id) or ""
        self._chars += len(piece)
        return piece

    def flush(self) -> str:
        """What was held back of a character that never became whole."""
        text: str = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        rest = text[self._chars :]
        self._chars = len(text)
        return rest


class StopStrings:
    """Finds the first stop string in a text that comes in pieces, and holds back what may become one.

    The first is the one that is complete first, so that the answer does not depend on how the text was cut.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max((len(stop) for stop in stops), default=0)
        self._held = ""
        self.found = False

    def feed(self, piece: str) -> str:
        """The text that can be given out now. Once `found`, it ends before the stop string and nothing follows."""
        if not self._stops:
            return piece
        if self.found:
            return ""
        text = self._held + piece
        matches = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if matches:
            self.found, self._held = True, ""
            return text[: min(matches)[1]]
        keep = self._beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back and became no stop string."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Length of the longest end of the text with which a stop string begins."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
