"""Whom a download believes and how long it asks: certificates, redirections, pages of somebody in between."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.base.fetching import trust
from tests.engine.services.packs.packs_support import TORCH, Kvasir, Server, in_use, stand_ins, write_list


def test_a_server_that_always_begins_anew_is_given_up(kvasir: Kvasir, server: Server) -> None:
    server.ranges = False
    server.cuts = [1 << 30, *[1 << 20] * 50]
    failed = kvasir.result("install")
    assert "127.0.0.1 cannot be reached" in failed.sentence
    assert len(server.asked(TORCH)) == 4  # the first, and one after each pause
    server.cuts = []
    assert kvasir.result("install").ok
    in_use(kvasir)


def test_a_page_of_a_network_costs_nothing_of_what_is_here(kvasir: Kvasir, server: Server) -> None:
    server.cuts = [1 << 30, 1 << 20, 0, 0, 0, 0]
    assert not kvasir.result("install").ok
    server.page = b"<html>Please log in to this network.</html>"
    failed = kvasir.result("install")
    assert f"it sends {len(server.page)} bytes that are not of {TORCH}" in failed.sentence
    server.page, server.cuts = b"", []
    assert kvasir.result("install").ok
    assert server.asked(TORCH)[-1].range == f"bytes={1 << 20}-"


def test_certificates_of_a_system_that_keeps_them_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(Path(path).is_file() for path in trust.CERTIFICATES):
        pytest.skip("this system has no bundle of certificates")
    monkeypatch.setattr(ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def known(place: Path | None) -> int:
        paths = ssl.DefaultVerifyPaths(None, str(place) if place else None, "", "", "", "")
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
        return trust.trusted().cert_store_stats()["x509_ca"]

    assert known(None) > 0
    assert known(tmp_path) > 0  # nothing lies there
    (tmp_path / "002c0b4f.0").touch()
    assert known(tmp_path) == 0  # those there are read when one is needed


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Server]:
    """The wheels by https, with a certificate that nobody has signed."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    stand_ins(tmp_path / "encrypted")
    server = Server(tmp_path / "encrypted")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    server.encrypt(context)
    yield server
    server.close()


def test_a_certificate_that_is_not_accepted_is_told_at_once(kvasir: Kvasir, encrypted: Server, tmp_path: Path) -> None:
    write_list(kvasir.lists, sorted(encrypted.folder.glob("*.whl")), encrypted.address)
    refused = kvasir.result("install")
    assert refused.sentence.startswith("localhost cannot be trusted: its certificate is not accepted (self-signed")
    assert encrypted.log == []
    assert kvasir.result("install", SSL_CERT_FILE=str(tmp_path / "certificate.pem")).ok
    in_use(kvasir)


def test_nobody_is_followed_to_an_address_that_is_not_encrypted(
    kvasir: Kvasir, server: Server, encrypted: Server, tmp_path: Path
) -> None:
    write_list(kvasir.lists, sorted(encrypted.folder.glob("*.whl")), encrypted.address)
    encrypted.elsewhere = server.address
    refused = kvasir.result("install", SSL_CERT_FILE=str(tmp_path / "certificate.pem"))
    assert "localhost sends to 127.0.0.1, which does not encrypt" in refused.sentence
    assert server.log == []
