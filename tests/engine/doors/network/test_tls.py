"""TLS of the server: certificates that are made, and files that are given."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import typer

from engine.doors import tls
from engine.doors.cli.serve import tls_of
from engine.doors.security import Allowed
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import TOKEN

ASKED = {"messages": [{"role": "user", "content": "secret words"}], "max_tokens": 3}
openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@openssl
def test_a_self_signed_certificate_is_made_once_and_trusted_alone(home: Path) -> None:
    made = tls_of(True, None, None, "127.0.0.1")
    assert made is not None
    assert os.name != "posix" or made.certificate.stat().st_mode & 0o077 == 0
    assert tls.self_signed(["127.0.0.1"]) == made, "the same for the same names"
    assert tls.self_signed(["nas.example"]).fingerprint != made.fingerprint
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", made.certificate],
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip().endswith(made.fingerprint)
    server = Running(tls=made)
    try:
        trusting = ssl.create_default_context(cafile=str(made.certificate))
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
        url = server.url.replace("http:", "https:")
        with httpx.Client(base_url=url, verify=trusting, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            assert http.get("/v1/models").status_code == 200
            assert http.get(url.replace("127.0.0.1", "localhost") + "/v1/models").status_code == 200
            assert http.get("/v1/models", headers={"Origin": url}).status_code == 200
            assert http.get("/v1/models", headers={"Origin": server.url}).status_code == 403
            with http.stream("POST", "/v1/chat/completions", json={**ASKED, "stream": True}) as answer:
                assert answer.read().endswith(b"data: [DONE]\n\n")
        with httpx.Client(base_url=url) as http, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            http.get("/v1/models")
    finally:
        server.stop()


@openssl
def test_an_old_certificate_is_made_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tls.self_signed([])
    monkeypatch.setattr(tls, "time", SimpleNamespace(time=lambda: made.certificate.stat().st_mtime + 826 * 86400))
    assert tls.self_signed([]).fingerprint != made.fingerprint


def parts(path: Path) -> tuple[str, str]:
    """The key and the certificate in a file."""
    key, begins, certificate = path.read_text().partition("-----BEGIN CERTIFICATE")
    return key, begins + certificate


@openssl
def test_files_that_cannot_be_used_are_refused_in_a_sentence(home: Path, tmp_path: Path) -> None:
    one, other = (parts(tls.self_signed([name]).certificate) for name in ("one", "other"))
    certificate, key, foreign, locked = (tmp_path / name for name in ("certificate", "key", "foreign", "locked"))
    certificate.write_text(one[1])
    key.write_text(one[0])
    foreign.write_text(other[0])
    command = ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    assert tls.given(certificate, key).key == key
    for second, said in (
        (foreign, "of another certificate"),
        (locked, "protected by a password"),
        (tmp_path / "none", "cannot be read"),
        (tmp_path, "cannot be read"),
        (certificate, "not a certificate and its key"),
        (None, "not a certificate and its key"),
    ):
        with pytest.raises(tls.TlsFailed, match=said):
            tls.given(certificate, second)


def test_without_openssl_the_command_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(tls.TlsFailed, match=r"openssl req -x509 .*--tls-cert and --tls-key"):
        tls_of(True, None, None, "0.0.0.0", Allowed(hosts=["nas:8642"]))


@pytest.mark.parametrize(("makes", "certificate", "key"), [(False, None, Path("k")), (True, Path("c"), None)])
def test_options_of_tls_that_do_not_go_together(makes: bool, certificate: Path | None, key: Path | None) -> None:
    with pytest.raises(typer.BadParameter):
        tls_of(makes, certificate, key, "127.0.0.1")
