"""API keys: a file of hashes, looked up in a time that tells nothing, read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import time
from pathlib import Path

import msgspec

from services.common import logs
from services.common.errors import ModelForbidden, Unauthorized
from services.common.settings import SettingsError

CHECK_SECONDS = 1.0  # how often the file's time is looked at
_log = logs.get()


class ApiKey(msgspec.Struct, frozen=True):
    """One key; without `models` it may use all of them."""

    name: str
    sha256: str
    models: list[str] | None = None

    def check_model(self, model: str) -> None:
        """Raise ModelForbidden where the key may not use a model."""
        if self.models is not None and model not in self.models:
            raise ModelForbidden(
                f"the key {self.name} may not use the model {model}: ask for access, or use {', '.join(self.models)}",
                param="model",
            )


class ApiKeys:
    """The keys of a file: a JSON list of {"name", "sha256", "models"?}."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked = time.monotonic()
        self._stamp = self._look()
        self._keys = self._read()

    def authenticate(self, authorization: str | None) -> ApiKey:
        """The key of an Authorization header; raises Unauthorized."""
        self._reload()
        if not authorization:
            raise Unauthorized("there is no API key: send the header Authorization: Bearer <key>")
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("the header Authorization must be: Bearer <key>")
        digest = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).hexdigest()
        found: ApiKey | None = None
        for candidate in self._keys:  # all of them, so that the time does not depend on which one it is
            if hmac.compare_digest(candidate.sha256, digest):
                found = candidate
        if found is None:
            raise Unauthorized("the API key is not known here: check it, or ask for a new one")
        return found

    def _reload(self) -> None:
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._keys = self._read()
            self._stamp = stamp
        except SettingsError as error:
            _log.error("keys_unreadable", error=str(error))  # the keys known so far stay valid
            return
        _log.info("keys_read", keys=len(self._keys))

    def _look(self) -> tuple[int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise SettingsError(f"GATEWAY_API_KEYS_FILE {self._path}: {error.strerror}") from None
        return stat.st_mtime_ns, stat.st_ino

    def _read(self) -> tuple[ApiKey, ...]:
        try:
            keys = msgspec.json.decode(self._path.read_bytes(), type=list[ApiKey])
        except OSError as error:
            raise SettingsError(f"GATEWAY_API_KEYS_FILE {self._path}: {error.strerror}") from None
        except msgspec.DecodeError as error:
            raise SettingsError(f"GATEWAY_API_KEYS_FILE {self._path}: {error}") from None
        for key in keys:
            if len(key.sha256) != 64 or not set(key.sha256) <= set("0123456789abcdef"):
                raise SettingsError(
                    f"GATEWAY_API_KEYS_FILE {self._path}: sha256 of {key.name} must be 64 hexadecimal digits, small"
                )
        return tuple(keys)
