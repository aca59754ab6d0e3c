"""The stack's own certificates: what is due at a time, and making it. Pure but for the randomness of keys.

A certificate is due when less than a third of its life is left. A new CA is first only trusted, beside the one before;
once everybody has had the time to read that (SETTLE) it signs; once nobody shows a certificate of the one before any
more, that is no longer trusted. So a rotation takes three steps, and at each of them every pair of roles gets along.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Kubelet takes up to two minutes to bring a changed Secret to its pods, which look for it every few seconds.
SETTLE = timedelta(minutes=10)
# Clocks differ a little: what is made now is already good.
SKEW = timedelta(minutes=5)
SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Wanted:
    """The certificates there are to be: for each owner the DNS names and IP addresses that it is reached by."""

    owners: Mapping[str, Sequence[str]]
    ca_life: timedelta
    life: timedelta
    rotation: int = 0


@dataclass(frozen=True)
class Held:
    """The certificates there are. The newest CA is last."""

    authorities: Sequence[Pair] = ()
    owners: Mapping[str, Pair] = field(default_factory=dict)
    rotation: int = 0

    @property
    def trusted(self) -> str:
        """Every CA's certificate, PEM."""
        return "".join(pair.certificate for pair in self.authorities)


@dataclass(frozen=True)
class Due:
    """What has to be done; false when it is nothing. `signer` is the place of the CA that signs; -1 is a new one."""

    signer: int
    new_authority: bool = False
    signed: Sequence[str] = ()
    dropped_owners: Sequence[str] = ()
    dropped_authorities: Sequence[int] = ()

    def __bool__(self) -> bool:
        return bool(self.new_authority or self.signed or self.dropped_owners or self.dropped_authorities)


def due(held: Held, wanted: Wanted, now: datetime) -> Due:
    """What `renewed` would do at this time, which has a time zone."""
    authorities = [_read(pair) for pair in held.authorities]
    living = [i for i, ca in enumerate(authorities) if ca.not_valid_after_utc > now]
    new = not living or _ends(authorities[living[-1]], now) or held.rotation != wanted.rotation
    settled = [i for i in living if _age(authorities[i], now) >= SETTLE]
    signer = settled[-1] if settled else living[0] if living else -1
    issuer = authorities[signer] if signer >= 0 else None
    owners = {name: _read(pair) for name, pair in held.owners.items()}
    signed = [
        name
        for name, names in wanted.owners.items()
        if name not in owners
        or _ends(owners[name], now)
        or sorted(_names(owners[name])) != sorted(names)
        or issuer is None
        or not _issued(owners[name], issuer)
    ]
    moved = not signed and all(_age(certificate, now) >= SETTLE for certificate in owners.values())
    dropped = [i for i in range(len(authorities)) if i not in living or (i < signer and moved)]
    return Due(signer, new, signed, sorted(owners.keys() - wanted.owners.keys()), dropped)


def renewed(held: Held, wanted: Wanted, now: datetime) -> Held:
    """What there is after everything due is done."""
    todo = due(held, wanted, now)
    authorities = list(held.authorities)
    if todo.new_authority:
        authorities.append(_authority(wanted.ca_life, now))
    signer = authorities[todo.signer]
    owners = {name: pair for name, pair in held.owners.items() if name in wanted.owners}
    owners |= {name: _signed(signer, name, wanted.owners[name], wanted.life, now) for name in todo.signed}
    kept = [pair for i, pair in enumerate(authorities) if i not in todo.dropped_authorities]
    return replace(held, authorities=kept, owners=owners, rotation=wanted.rotation)


def _read(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.encode())


def _ends(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether less than a third of its life is left."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < life / 3


def _age(certificate: x509.Certificate, now: datetime) -> timedelta:
    return now - certificate.not_valid_before_utc - SKEW


def _names(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    return certificate.issuer == issuer.subject  # each CA has a name of its own


def _authority(life: timedelta, now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"Diphase internal CA {serial:x}"[:64])
    builder = (
        _builder(name, name, key.public_key(), life, now)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(SIGNS_CERTIFICATES, critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _signed(signer: Pair, owner: str, names: Sequence[str], life: timedelta, now: datetime) -> Pair:
    """A certificate with which its owner serves and is a client."""
    ca = _read(signer)
    ca_key = serialization.load_pem_private_key(signer.key.encode(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    life = min(life, ca.not_valid_after_utc - now)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_name(owner), ca.subject, key.public_key(), life, now)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return _pair(builder.sign(ca_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem).decode(), plain.decode())
