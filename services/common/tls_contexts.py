"""TLS contexts from the files of a folder, proved by a handshake with themselves before anybody else meets them."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INTERNAL_NAME = "diphase.internal"  # in every internal certificate: who connects verifies it, whatever the address
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name
_FLIGHTS = 8  # more messages than any handshake has


class CertificateError(Exception):
    """The files are no usable identity; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """What one state of the files gives. `client` exists where they name a CA, which is where clients have certificates
    too; `not_after` is the Unix time at which the own certificate expires.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext | None
    not_after: float


def digest(folder: Path, names: tuple[str, ...]) -> str:
    """Of the files' content; raises CertificateError where one cannot be read."""
    summary = hashlib.sha256()
    for name in names:
        summary.update(hashlib.sha256(_read(folder / name)).digest())
    return summary.hexdigest()


def load_internal(folder: Path) -> Contexts:
    """tls.crt, tls.key and ca.crt: both sides show a certificate of the CA, by TLS 1.3. Raises CertificateError."""
    server, client = (_context(folder, protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    authorities = folder / "ca.crt"
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, authorities)
    server.num_tickets = 0  # no connection is resumed, so each one is verified by the CAs of its day
    return Contexts(server, client, _prove(folder, server, client, INTERNAL_NAME))


def load_edge(folder: Path) -> Contexts:
    """tls.crt and tls.key of a server for anybody, by TLS 1.2 or newer. Raises CertificateError."""
    server = _context(folder, ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_2
    server.set_alpn_protocols(["http/1.1"])
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # who signed it is for the clients to judge
    _trust(anybody, folder / "tls.crt")
    return Contexts(server, None, _prove(folder, server, anybody, None))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror or error}") from None


def _context(folder: Path, protocol: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    certificate, key = folder / "tls.crt", folder / "tls.key"
    try:
        context.load_cert_chain(certificate, key, password="")  # without one, a locked key asks the terminal for it
    except ssl.SSLError as error:
        raise CertificateError(f"{certificate} and {key} are not a PEM certificate and its key: {error}") from None
    except OSError as error:
        raise CertificateError(f"cannot read {certificate} or {key}: {error.strerror or error}") from None
    return context


def _trust(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(cadata=_read(path).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"{path} holds no PEM certificates: {error}") from None


def _prove(folder: Path, server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> float:
    """Let the two meet in memory; returns when the server's certificate expires. The time itself is not judged: an
    expired certificate is a fault that is told, and not one that keeps its successor from being waited for.
    """
    for context in (server, client):
        context.verify_flags |= _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for flight in range(_FLIGHTS):
            try:
                ends[flight % 2].do_handshake()
            except ssl.SSLWantReadError:
                continue
        seen = ends[0].getpeercert()
    except (ssl.SSLError, ValueError) as error:
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
        raise CertificateError(f"the certificate in {folder} would not be accepted: {reason}") from None
    for context in (server, client):
        context.verify_flags &= ~_NO_CHECK_TIME
    assert seen is not None
    return ssl.cert_time_to_seconds(str(seen["notAfter"]))
