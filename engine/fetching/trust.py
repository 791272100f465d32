"""Whom a download trusts: the system's certificates, and no address that is not encrypted where the first one was."""

from __future__ import annotations

import functools
import ssl
import urllib.request
from http.client import HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from engine.fetching.errors import FetchFailed

CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep their certificates; the interpreter of a packaged program knows the place of one system alone."""


@functools.cache
def opener() -> urllib.request.OpenerDirector:
    """Python's own HTTP client, so that ``HTTPS_PROXY`` holds."""
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=trusted()), _Encrypted())


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
    """Why a server is not believed, as sentences for a person."""
    return (
        f"{host} cannot be trusted: its certificate is not accepted ({error.verify_message or error}). Nothing was "
        "taken from it. Check this computer's date, and that its certificates are installed (the package "
        "ca-certificates). Where a network puts its own certificate in between, SSL_CERT_FILE names the file with it."
    )


class _Encrypted(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        asked, sent_to = urlsplit(req.full_url), urlsplit(newurl)
        if asked.scheme == "https" and sent_to.scheme != "https":
            raise FetchFailed(
                f"{asked.hostname} sends to {sent_to.hostname}, which does not encrypt. "
                "Nothing was taken from there. Try again on another network."
            )
        onwards = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        if onwards is not None and token and (asked.scheme, asked.netloc) == (sent_to.scheme, sent_to.netloc):
            onwards.add_unredirected_header("Authorization", token)  # still the server that it was meant for
        return onwards
