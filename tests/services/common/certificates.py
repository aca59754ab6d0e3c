"""Certificate authorities for tests, and folders as a mounted Secret has them."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.common.tls import INTERNAL_NAME

DAY = datetime.timedelta(days=1)
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass
class Authority:
    """A CA of its own."""

    name: str = "test CA"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self._certificate = (
            self._builder(self.name, self.key.public_key(), 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """ca.crt."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(
        self, subject: str, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() + min(-DAY, life - DAY))
            .not_valid_after(_now() + life)
        )

    def issue(
        self,
        *names: str,
        life: datetime.timedelta = DAY,
        usage: Sequence[x509.ObjectIdentifier] = BOTH,
    ) -> dict[str, bytes]:
        """tls.crt and tls.key of a certificate for DNS names; ends `life` from now, which may be in the past."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder("role", key.public_key(), life)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return {
            "tls.crt": certificate.public_bytes(serialization.Encoding.PEM),
            "tls.key": key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        }

    def internal(self, *trusted: Authority, life: datetime.timedelta = DAY) -> dict[str, bytes]:
        """A role's whole Secret: a certificate of this CA; this one and those given are trusted."""
        return {
            **self.issue(INTERNAL_NAME, "role", life=life),
            "ca.crt": b"".join(authority.pem for authority in (self, *trusted)),
        }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Files as they are, in place."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def mount(folder: Path, files: dict[str, bytes]) -> Path:
    """Files as kubelet mounts a Secret, or swaps one that it has mounted: behind the link `..data`, at one stroke."""
    folder.mkdir(exist_ok=True)
    version = folder / f"..{os.urandom(4).hex()}"
    write(version, files)
    fresh = folder / "..data_tmp"
    fresh.symlink_to(version.name)
    fresh.rename(folder / "..data")
    for name in files:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(Path("..data") / name)
    return folder
