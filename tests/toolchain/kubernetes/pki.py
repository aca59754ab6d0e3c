"""The certificates and kubeconfigs of one cluster, made anew at each start."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.toolchain.kubernetes.addresses import Addresses

Key = ec.EllipticCurvePrivateKey
VALID = datetime.timedelta(days=30)
# Services of kube-system behind which the cluster's API goes on.
METRICS = ("metrics-server", "external-metrics")
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


class Authority:
    """A certificate authority that writes NAME.crt and NAME.key into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
        self.certificate = folder / f"{name}.crt"
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = _builder(self._name, self._name, self._key, self._key).add_extension(usage, critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._write(name, builder.sign(self._key, hashes.SHA256()), self._key)

    def issue(
        self, name: str, user: str, group: str | None = None, *, server: bool = False, names: Sequence[str] = ()
    ) -> None:
        """Write a certificate for `user` in `group`: a client, or a server with `names` (DNS, addresses)."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(user, group), self._name, key, self._key)
        builder = builder.add_extension(x509.ExtendedKeyUsage([SERVER if server else CLIENT]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), False)
        self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _write(self, name: str, certificate: x509.Certificate, key: Key) -> None:
        (self._folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(self._folder / f"{name}.key", key)


def make(folder: Path, addresses: Addresses) -> None:
    """Write all of a cluster's certificates, keys and kubeconfigs into an empty folder."""
    authority = Authority(folder, "ca")
    service = "kubernetes.default.svc"
    known = ["kubernetes", "kubernetes.default", service, f"{service}.cluster.local", "localhost", "127.0.0.1"]
    api = [*known, addresses.kubernetes, addresses.node]
    authority.issue("apiserver", "kube-apiserver", server=True, names=api)
    authority.issue("kubelet-server", "kubelet", server=True, names=[addresses.name, addresses.node, "127.0.0.1"])
    authority.issue("apiserver-client", "apiserver", "system:masters")
    authority.issue("admin", "admin", "system:masters")
    authority.issue("kubelet", f"system:node:{addresses.name}", "system:nodes")
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        authority.issue(name, f"system:{name}")
    services = [f"{name}.kube-system.svc" for name in METRICS]
    authority.issue("metrics", "metrics", server=True, names=services)
    # The API server speaks as front-proxy to API services that extend it, such as one of custom metrics.
    Authority(folder, "front-proxy-ca").issue("front-proxy", "front-proxy")
    accounts = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "accounts.key", accounts)
    (folder / "accounts.pub").write_bytes(
        accounts.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    for name in ("admin", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"):
        (folder / f"{name}.kubeconfig").write_text(kubeconfig(folder, name, addresses))
        (folder / f"{name}.kubeconfig").chmod(0o600)


def kubeconfig(folder: Path, name: str, addresses: Addresses) -> str:
    """A kubeconfig (JSON, which is YAML) with everything in it, good inside the node and on the host."""

    def inline(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    cluster = {"server": addresses.api, "certificate-authority-data": inline("ca.crt")}
    user = {"client-certificate-data": inline(f"{name}.crt"), "client-key-data": inline(f"{name}.key")}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": addresses.name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": addresses.name, "context": {"cluster": addresses.name, "user": name}}],
            "current-context": addresses.name,
        },
        indent=1,
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: Key, signer: Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks need not agree to the second.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _subject(user: str, group: str | None = None) -> x509.Name:
    """Kubernetes takes a user from CN and a group from O."""
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), *parts] if group else parts)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(path: Path, key: Key) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
