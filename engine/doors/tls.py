"""TLS of the server: with the certificate that it is given, or with one that it signs itself, made by openssl."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.base import folders, installation
from engine.services.keys import write_private

DAYS = 825
"""For which a certificate is made; Apple's systems take none for longer."""
_COMMAND = "openssl req -x509 -newkey rsa:2048 -nodes -days 825 -subj /CN=localhost -keyout key.pem -out cert.pem"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_CONFIG = """[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = Kvasir
[extensions]
subjectAltName = {names}
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
"""
"""No authority (CA:FALSE): whoever trusts it trusts this server alone."""


class TlsFailed(Exception):  # noqa: N818 - an outcome that a person is told about
    """There is no TLS with these files; the message is a sentence for a person."""


class Tls(NamedTuple):
    """``key`` None: it is in the file of the ``certificate``. ``fingerprint``: SHA-256 of the certificate."""

    certificate: Path
    key: Path | None
    fingerprint: str


def given(certificate: Path, key: Path | None = None) -> Tls:
    """The files after a look at them. Raises :class:`TlsFailed`."""
    for file in filter(None, (certificate, key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise TlsFailed(f"{file} cannot be read ({error.strerror}). Give a file in PEM's format.") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, _no_password)
    except ssl.SSLError as error:
        raise TlsFailed(_unusable(certificate, key or certificate, error)) from error
    found = _CERTIFICATE.search(certificate.read_text("latin-1"))
    if found is None:
        raise TlsFailed(f"{certificate} holds no certificate in PEM's usual form. Convert it with openssl x509.")
    return Tls(certificate, key, _fingerprint(found[0]))


def self_signed(hosts: Sequence[str]) -> Tls:
    """A certificate for this machine and the ``hosts``, kept next to the settings where only the user can read it;
    made again where those are others or its time is over. Raises :class:`TlsFailed`, and OSError."""
    names = sorted({"localhost", "127.0.0.1", "::1", *filter(_can_be_named, (socket.gethostname(), *hosts))})
    folder = folders.place("config", folders.SYSTEM.user_config_path)
    file = folder / f"server-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}.pem"
    if not file.exists() or time.time() - file.stat().st_mtime > DAYS * 24 * 3600:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, _made(names))
    return given(file)


def _made(names: Sequence[str]) -> bytes:
    """A key and its certificate in PEM's format. Raises :class:`TlsFailed`."""
    program = shutil.which("openssl")
    if program is None:
        raise TlsFailed(
            "The program openssl, which makes certificates, is not installed. Install it, or make both files elsewhere "
            f"({_COMMAND}) and give them as --tls-cert and --tls-key."
        )
    with tempfile.TemporaryDirectory() as folder:  # of the user alone
        Path(folder, "config").write_text(_CONFIG.format(names=", ".join(map(_alternative, names))))
        command = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-sha256", "-days", str(DAYS), "-config", "config", "-keyout", "key", "-out", "certificate"]
        own = installation.without_own_libraries(os.environ)
        done = subprocess.run(
            command, cwd=folder, env=own, capture_output=True, text=True, errors="replace", timeout=60
        )
        if done.returncode:
            said = " ".join(done.stderr.split())[-300:]
            raise TlsFailed(f"openssl made no certificate ({said}). Give files of your own: --tls-cert and --tls-key.")
        return Path(folder, "key").read_bytes() + Path(folder, "certificate").read_bytes()


def _can_be_named(host: str) -> bool:
    """True for a host's name and for an address of its own: no certificate is for 0.0.0.0, which stands for all."""
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return re.fullmatch(r"[A-Za-z0-9._-]+", host) is not None


def _alternative(name: str) -> str:
    """As openssl writes a subject's alternative name."""
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _fingerprint(certificate: str) -> str:
    """As `openssl x509 -fingerprint -sha256` and browsers show it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest().hex(":").upper()


def _no_password() -> str:
    raise TlsFailed("The key is protected by a password. Give one without: openssl pkey -in KEY -out NEW.")


def _unusable(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key} is the key of another certificate than {certificate}. Give the two that belong together."
    what = f"{certificate} and {key} are" if certificate != key else f"{certificate} is"
    return f"{what} not a certificate and its key in PEM's format. Check what you gave."
