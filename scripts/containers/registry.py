"""Asks a registry what it holds, by the OCI distribution API; docker itself cannot list tags."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.containers import credentials
from scripts.faults import OperationFailed

SECONDS = 30.0
MAX_BYTES = 8 * 1024 * 1024
MAX_PAGES = 50
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
REFERENCE = re.compile(r"(?P<host>[A-Za-z0-9.-]+(:\d+)?|\[[0-9a-fA-F:]+\](:\d+)?)(/(?P<path>[a-z0-9._/-]+))?")


@dataclass(frozen=True)
class Manifest:
    """What a tag stands for. `ids` are the names under which a docker that holds the same image may know it."""

    digest: str
    ids: frozenset[str]
    config: str | None


class Registry:
    """A registry's repositories under one prefix, HOST/REPO. Methods raise OperationFailed."""

    def __init__(self, prefix: str, *, plain: bool = False) -> None:
        found = REFERENCE.fullmatch(prefix.rstrip("/"))
        if found is None:
            raise OperationFailed(f"{prefix} is no registry: it is HOST[:PORT]/REPOSITORY, without https://")
        self.prefix = prefix.rstrip("/")
        self._host, self._path = found["host"], found["path"] or ""
        self._plain = plain or _loopback(self._host)
        self._authorization: dict[str, str] = {}

    def manifest(self, name: str, reference: str) -> Manifest | None:
        """The manifest of a tag or digest; None where the registry has none."""
        body = self._get(name, f"manifests/{reference}", accept=", ".join(MANIFESTS))
        if body is None:
            return None
        document = self._parsed(body)
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        config: str | None = document.get("config", {}).get("digest")
        return Manifest(digest, frozenset(filter(None, (digest, config))), config)

    def tags(self, name: str) -> list[str]:
        """Every tag of a repository, sorted; empty where there is none."""
        found: list[str] = []
        for _ in range(MAX_PAGES):
            last = f"&last={urllib.parse.quote(found[-1])}" if found else ""
            body = self._get(name, f"tags/list?n=100{last}")
            page = self._parsed(body).get("tags") or []
            found += [tag for tag in page if tag not in found]
            if len(page) < 100:
                break
        return sorted(found)

    def labels(self, name: str, manifest: Manifest) -> dict[str, str]:
        """The labels of an image; empty where it has none or is an index of several."""
        body = self._get(name, f"blobs/{manifest.config}") if manifest.config else None
        labels: dict[str, str] = self._parsed(body).get("config", {}).get("Labels") or {}
        return labels

    def _parsed(self, body: bytes | None) -> dict[str, Any]:
        try:
            document = json.loads(body or b"{}")
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise OperationFailed(f"{self._host} does not answer like a registry; is the address right?")
        return document

    def _get(self, name: str, what: str, accept: str = "*/*") -> bytes | None:
        scheme = "http" if self._plain else "https"
        repository = "/".join(filter(None, (self._path, name)))
        url = f"{scheme}://{self._host}/v2/{repository}/{what}"
        try:
            try:
                return self._fetch(url, accept, self._authorization.get(repository))
            except urllib.error.HTTPError as error:
                challenge = error.headers.get("WWW-Authenticate", "")
                if error.code != 401 or not challenge:
                    raise
                authorization = self._authorize(challenge)
            self._authorization[repository] = authorization
            return self._fetch(url, accept, authorization)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            remedy = f"; `docker login {self._host}` first" if error.code in (401, 403) else ""
            raise OperationFailed(f"{self._host} answered {error.code} for {repository}{remedy}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise OperationFailed(f"the registry {self._host} cannot be reached over {scheme}: {reason}") from None

    def _authorize(self, challenge: str) -> str:
        """An Authorization header for a challenge: Basic as it is, or a token that was asked for."""
        kept = credentials.find(self._host)
        basic = f"Basic {base64.b64encode(':'.join(kept).encode()).decode()}" if kept else None
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            if basic is None:
                raise OperationFailed(f"{self._host} wants a password: `docker login {self._host}` first")
            return basic
        wanted = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        query = urllib.parse.urlencode({key: wanted[key] for key in ("service", "scope") if key in wanted})
        body = self._fetch(f"{wanted.get('realm', '')}?{query}", "application/json", basic)
        document = self._parsed(body)
        return f"Bearer {document.get('token') or document['access_token']}"

    def _fetch(self, url: str, accept: str, authorization: str | None) -> bytes:
        request = urllib.request.Request(url, headers={"Accept": accept})
        if authorization:
            # Blobs may be redirected to a store that must not see it.
            request.add_unredirected_header("Authorization", authorization)
        with urllib.request.urlopen(request, timeout=SECONDS, context=self._trust(url)) as response:
            body: bytes = response.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise OperationFailed(f"{self._host} answered more than {MAX_BYTES} bytes for {url}")
        return body

    def _trust(self, url: str) -> ssl.SSLContext | None:
        if not url.startswith("https:"):
            return None
        context = ssl.create_default_context()
        own = Path("/etc/docker/certs.d") / self._host / "ca.crt"  # where docker itself looks
        if own.is_file():
            context.load_verify_locations(own)
        return context


def _loopback(host: str) -> bool:
    """Whether docker, too, speaks plain HTTP to this host."""
    name = re.sub(r":\d+$", "", host).strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
