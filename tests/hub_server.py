"""A hub on this machine: the part of the hub's API that ``huggingface_hub`` and downloads use, with its faults."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.range_server import RangeServer, asked_span

SMALL = 1 << 10
"""Larger files are kept as LFS objects, with a sha256."""


class Repository:
    """``files`` by name. ``gated``: given to those with a token. ``info``: fields of the hub's answer."""

    def __init__(self, files: dict[str, bytes], gated: bool = False, **info: Any) -> None:
        self.files, self.gated, self.info = files, gated, info

    @property
    def revision(self) -> str:
        digest = hashlib.sha1(usedforsecurity=False)
        for name, content in sorted(self.files.items()):
            digest.update(name.encode() + content)
        return digest.hexdigest()

    def described(self, name: str, blobs: bool) -> dict[str, Any]:
        siblings = [
            self._sibling(file, content) if blobs else {"rfilename": file} for file, content in self.files.items()
        ]
        return {
            "_id": "1",
            "id": name,
            "modelId": name,
            "sha": self.revision,
            "private": False,
            "gated": "manual" if self.gated else False,
            "downloads": 10,
            "likes": 3,
            "lastModified": "2026-11-24T10:00:00.000Z",
            "tags": [],
            "siblings": siblings,
            **self.info,
        }

    @staticmethod
    def _sibling(name: str, content: bytes) -> dict[str, Any]:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        said: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
        if len(content) > SMALL:
            sha256 = hashlib.sha256(content).hexdigest()
            said["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
        return said


def stock() -> dict[str, Repository]:
    """A model in GGUF (two kinds, one in two parts), one of safetensors, and a gated one."""
    make = random.Random(0).randbytes
    return {
        "some/model-GGUF": Repository(
            {
                "README.md": b"# A model\n",
                "model-Q4_K_M.gguf": make(300_000),
                "Q8_0/model-Q8_0-00001-of-00002.gguf": make(200_000),
                "Q8_0/model-Q8_0-00002-of-00002.gguf": make(250_000),
                "mmproj-model-F16.gguf": make(50_000),
            },
            tags=["gguf", "license:apache-2.0"],
            gguf={"total": 8_000_000_000, "architecture": "qwen3"},
        ),
        "some/model": Repository(
            {
                "config.json": b'{"architectures": ["Qwen3ForCausalLM"]}',
                "tokenizer.json": make(20_000),
                "model-00001-of-00002.safetensors": make(400_000),
                "model-00002-of-00002.safetensors": make(100_000),
                "model.safetensors.index.json": b"{}",
                "original/consolidated.00.pth": make(2000),
                "pytorch_model.bin": make(2000),
            },
            tags=["safetensors", "license:mit"],
            config={"architectures": ["Qwen3ForCausalLM"], "quantization_config": {"quant_method": "gptq"}},
            safetensors={"parameters": {"I32": 10, "BF16": 20}, "total": 30},
            downloads=99,
        ),
        "closed/model": Repository({"config.json": b"{}", "model.safetensors": make(5000)}, gated=True),
    }


class Hub(RangeServer):
    """``spoilt``: names of files that come with a wrong bit. ``pause``: seconds before each block of 16 kB.
    ``tokens``: those that are known. ``sent`` counts bytes by file."""

    protocol = "HTTP/1.1"

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.spoilt: set[str] = set()
        self.pause = 0.0
        self.tokens: set[str] = set()
        self.sent: Counter[str] = Counter()
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.starts: list[tuple[str, int]] = []
        """Each answer with content: the file, and the byte that it began at."""
        self.authorised: list[tuple[str, str]] = []
        """Path and Authorization of every request."""
        super().__init__()
        self.elsewhere = f"http://localhost:{self.port}"
        """Where large files are sent to, under another name."""

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        url = urlsplit(to.path)
        path, query = unquote(url.path), parse_qs(url.query)
        token = to.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append((path, query))
        self.authorised.append((path, token))
        if self.statuses:
            return self._json(to, {"error": "a fault"}, self.statuses.pop(0))
        if self.page:
            return self._bytes(to, self.page, "text/html")
        if token and token not in self.tokens:
            return self._json(to, {"error": "Invalid credentials in Authorization header"}, 401)
        if path == "/api/whoami-v2":
            return self._json(to, {"name": "somebody", "type": "user"}, 200 if token else 401)
        if path == "/api/models":
            return self._json(to, self._found(query))
        if path.startswith("/api/models/"):
            return self._described(to, path.removeprefix("/api/models/"), "blobs" in query)
        return self._content(to, path, token)

    def _found(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        text = query.get("search", [""])[0].lower()
        wanted = set(query.get("filter", []))
        found = [
            each.described(name, False)
            for name, each in self.repositories.items()
            if text in name.lower() and wanted <= set(each.info.get("tags", []))
        ]
        return sorted(found, key=lambda info: -info["downloads"])[: int(query.get("limit", ["1000"])[0])]

    def _described(self, to: BaseHTTPRequestHandler, rest: str, blobs: bool) -> None:
        name, _, revision = rest.partition("/revision/")
        found = self.repositories.get(name)
        if found is None:
            return self._json(to, {"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        if revision not in ("", "main", found.revision):
            return self._json(to, {"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
        return self._json(to, found.described(name, blobs))

    def _content(self, to: BaseHTTPRequestHandler, path: str, token: str) -> None:
        elsewhere = path.startswith("/elsewhere/")
        cached = "/resolve-cache/" in path
        """Small files are sent to another path of the hub, for which a token is needed again."""
        plain = path.replace("/resolve-cache/", "/resolve/", 1)
        name, _, rest = plain.removeprefix("/elsewhere").lstrip("/").partition("/resolve/")
        found = self.repositories.get(name)
        file = rest.partition("/")[2]
        if found is None or file not in found.files:
            return self._json(to, {"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        if found.gated and not token and not elsewhere:
            return self._json(to, {"error": "Access is restricted"}, 401, {"X-Error-Code": "GatedRepo"})
        content = found.files[file]
        if not elsewhere and not cached:
            to.send_response(302 if len(content) > SMALL else 307)
            within = path.replace("/resolve/", "/resolve-cache/", 1)
            to.send_header("Location", f"{self.elsewhere}/elsewhere{path}" if len(content) > SMALL else within)
            to.send_header("Content-Length", "0")
            to.end_headers()
            return None
        if file in self.spoilt:
            content = bytes([content[0] ^ 1]) + content[1:]
        try:
            span = asked_span(to, len(content))
        except ValueError:
            return self._json(to, {}, 416)
        self.starts.append((file, span[0] if span else 0))
        counted = 0

        def count(sent: int) -> None:
            nonlocal counted
            self.sent[file] += sent - counted
            counted = sent
            time.sleep(self.pause)

        count(self.send(to, content, span, count))
        return None

    def _json(
        self, to: BaseHTTPRequestHandler, value: object, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self._bytes(to, json.dumps(value).encode(), "application/json", status, headers)

    @staticmethod
    def _bytes(
        to: BaseHTTPRequestHandler, body: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        to.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            to.send_header(name, value)
        to.end_headers()
        to.wfile.write(body)
