"""A role's certificates, read again when their files change: new handshakes use the new ones, without a restart.

kubelet swaps a mounted Secret while the process runs, and whoever writes files by hand leaves half of them there for a
moment. So what cannot be used is not taken: the earlier certificates stay, a warning is logged, and a counter grows.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

from prometheus_client import Counter, Gauge

from services.common import logs, metrics
from services.common.settings import SettingsError
from services.common.tls_contexts import INTERNAL_NAME, CertificateError, Contexts, digest, load_edge, load_internal

__all__ = ["INTERNAL_NAME", "Certificates"]

CHECK_SECONDS = 1.0  # how old the last look at the files may be when a handshake begins
Use = Literal["internal", "edge"]
_KINDS: dict[Use, tuple[str, tuple[str, ...], Callable[[Path], Contexts]]] = {
    "internal": ("TLS_FOLDER", ("tls.crt", "tls.key", "ca.crt"), load_internal),
    "edge": ("GATEWAY_TLS_FOLDER", ("tls.crt", "tls.key"), load_edge),
}
_expiry = Gauge(
    "diphase_certificate_expiry_timestamp_seconds",
    "Unix time at which the own certificate expires",
    ["certificate"],
    registry=metrics.REGISTRY,
)
_loads = Counter(
    "diphase_certificate_loads",
    "New content of the certificates' files, by outcome: used, or refused and the earlier one kept",
    ["certificate", "outcome"],
    registry=metrics.REGISTRY,
)
_log = logs.get()


class Certificates:
    """The certificates of one use. Thread-safe. `generation` grows when they change.

    "internal" (TLS_FOLDER: tls.crt, tls.key, ca.crt) is for both ends of connections between roles; "edge"
    (GATEWAY_TLS_FOLDER: tls.crt, tls.key) for a server that anybody may connect to. Raises SettingsError where the
    folder's files cannot be used at the start.
    """

    def __init__(self, use: Use, folder: Path) -> None:
        variable, self._names, self._load = _KINDS[use]
        self._use, self._folder = use, folder
        self._lock = threading.Lock()
        self._refused: str | None = None  # digest, or the reason why there is none, of what is not used
        self.generation = 1
        try:
            self._digest = digest(folder, self._names)
            self._contexts = self._load(folder)
        except CertificateError as error:
            raise SettingsError(f"{variable}: {error}: it takes {', '.join(self._names)}") from None
        self._checked_at = time.monotonic()
        self.server = _Current(self)
        for outcome in ("used", "refused"):
            _loads.labels(use, outcome)
        _expiry.labels(use).set_function(lambda: self.current().not_after)

    @classmethod
    def of(cls, use: Use, folder: Path | None) -> Self | None:
        """None where no folder is set: then there is no TLS."""
        return None if folder is None else cls(use, folder)

    def client(self) -> ssl.SSLContext:
        """For the next connection to another role; verify INTERNAL_NAME by it."""
        context = self.current().client
        assert context is not None, "a certificate for the edge is no client's"
        return context

    def fault(self) -> str | None:
        """Why nobody accepts the certificate any more; None while it is valid."""
        ended = time.time() - self.current().not_after
        if ended < 0:
            return None
        return f"the certificate in {self._folder} expired {ended:.0f} s ago: renew it, no restart is needed"

    def current(self) -> Contexts:
        """What the files hold; at most CHECK_SECONDS old."""
        if time.monotonic() - self._checked_at >= CHECK_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._check()
                self._checked_at = time.monotonic()
            finally:
                self._lock.release()
        return self._contexts

    def _check(self) -> None:
        try:
            found = digest(self._folder, self._names)
        except CertificateError as error:
            self._refuse(str(error), error)
            return
        if found == self._digest:
            self._refused = None
            return
        if found == self._refused:
            return
        try:
            contexts = self._load(self._folder)
            if digest(self._folder, self._names) != found:
                return  # swapped meanwhile, and perhaps mixed: the next look takes it
        except CertificateError as error:
            self._refuse(found, error)
            return
        self._contexts, self._digest, self._refused = contexts, found, None
        self.generation += 1
        _loads.labels(self._use, "used").inc()
        _log.info("certificate_rotated", certificate=self._use, not_after=contexts.not_after)

    def _refuse(self, what: str, error: CertificateError) -> None:
        """Keep what there was; told once for each state of the files."""
        if what == self._refused:
            return
        self._refused = what
        _loads.labels(self._use, "refused").inc()
        _log.warning("certificate_refused", certificate=self._use, reason=str(error))


class _Current(ssl.SSLContext):
    """Stands for whichever server context is current: a listening asyncio server asks it at each handshake."""

    _certificates: Certificates

    def __new__(cls, certificates: Certificates) -> Self:
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self._certificates = certificates
        return self

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """For one connection of asyncio or uvloop."""
        return self._certificates.current().server.wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """For one connection of a thread's."""
        return self._certificates.current().server.wrap_socket(*args, **kwargs)
