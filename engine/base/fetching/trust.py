"""Trust of downloads: the system's certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Paths at which systems keep their certificates; the interpreter of a packaged program knows that of one system alone.
"""


def trusted() -> ssl.SSLContext:
    """The system's certificates, also where the interpreter was built for another system."""
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath  # which it looks into by itself, a certificate at a time
    in_folder = folder is not None and any(Path(folder).glob("*.[0-9]"))
    place = next((path for path in CERTIFICATES if Path(path).is_file()), None)
    if place is not None and not in_folder and not context.cert_store_stats()["x509_ca"]:
        context.load_verify_locations(place)
    return context


def refusal(host: str, error: ssl.SSLCertVerificationError) -> str:
    """Sentences that say why a server's certificate is not accepted, and what to do."""
    return (
        f"{host} cannot be trusted: its certificate is not accepted ({error.verify_message or error}). Nothing was "
        "taken from it. Check this computer's date, and that its certificates are installed (the package "
        "ca-certificates). Where a network puts its own certificate in between, SSL_CERT_FILE names the file with it."
    )
