"""The hub: search, and what a repository holds. Its answers are read up to a size, within a time, and only what has the
types that it should; the variables of ``huggingface_hub`` hold (``HF_ENDPOINT``, ``HF_HUB_OFFLINE``, ``HF_TOKEN``).
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from engine.base import stopping
from engine.base.errors import plain
from engine.base.fetching import trust
from engine.base.fetching.client import certificate_error, opened, origin, way_to
from engine.base.fetching.errors import FetchFailed, unreachable
from engine.library import keys
from engine.library.hugging_face import constants, get_token, hf_raise_for_status, logging
from engine.library.hugging_face import errors as hub_errors
from engine.library.variants import is_repository, variants_of
from engine.protocol.library import HubFile, HubModel, HubRepository, ModelFormat

T = TypeVar("T")
ENDPOINT = "https://huggingface.co"
"""The hub where ``HF_ENDPOINT`` names none."""
FOUND = 30
"""Repositories that a search brings, unless more are asked for."""
FIELDS = ("downloads", "likes", "lastModified", "gated", "tags", "safetensors", "gguf", "config")
TIMEOUT = 20.0
"""Seconds without a byte."""
PATIENCE = 60.0
"""Seconds that an answer may take."""
MOST_BYTES = 16 << 20
"""Bytes of an answer. Ten thousand files take two and a half million."""
MOST_FILES = 20_000
"""Files of a repository."""
MOST_PAGES = 20
"""Pages of a search."""
SORTS = {"last_modified": "lastModified", "trending_score": "trendingScore"}
"""Orders that the hub calls otherwise."""
_WORD = 100
"""Characters of what a repository's owner says: a licence, an architecture."""
logging.set_verbosity_error()  # its notes are not for people: what comes of them is
OFFLINE = "The hub is not asked while HF_HUB_OFFLINE is set. Unset it to search and download."

_ODD = (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError)
"""Errors from values that are not what they should be."""
_NO_ANSWER = (*_ODD, msgspec.MsgspecError, httpx2.InvalidURL)
"""Errors from reading something else than the hub's answer."""
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class _Lfs(msgspec.Struct):
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Sibling(msgspec.Struct):
    """A file, as the hub's API has it."""

    rfilename: str
    size: _Count | None = None
    blobId: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40,64}$")] | None = None  # noqa: N815
    lfs: _Lfs | None = None


class _Info(msgspec.Struct):
    """A repository, as the hub's API has it. What its owner says may be anything, and is looked at where it is used."""

    id: str
    sha: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{7,64}$")] | None = None
    lastModified: str | None = None  # noqa: N815
    gated: bool | str | None = False
    downloads: _Count | None = 0
    likes: _Count | None = 0
    siblings: list[_Sibling] | None = None
    tags: Any = None
    gguf: Any = None
    safetensors: Any = None
    config: Any = None


class HubFailed(FetchFailed):
    """The hub does not answer as wished; the message is a sentence for a person."""


class Search(NamedTuple):
    """``parameters`` as "min:3B,max:9B". ``licence`` as "apache-2.0". ``task``: the hub's word for what models do."""

    text: str = ""
    author: str = ""
    format: ModelFormat | None = None
    licence: str = ""
    parameters: str = ""
    sort: str = "downloads"
    limit: int = FOUND
    task: str = ""


def search(asked: Search) -> list[HubModel]:
    """Repositories of models, those in most use first. Raises :class:`HubFailed`."""
    tags: list[str] = [asked.format] if asked.format else []
    tags += [f"license:{asked.licence}"] if asked.licence else []
    wanted: dict[str, Any] = {
        "search": asked.text,
        "author": asked.author,
        "filter": tags,
        "pipeline_tag": asked.task,
        "num_parameters": asked.parameters,
        "sort": SORTS.get(asked.sort, asked.sort),
        "limit": asked.limit,
        "expand": FIELDS,
    }
    found: list[HubModel] = []
    with _failures(asked.text):
        page = f"{endpoint()}/api/models?{httpx2.QueryParams({name: each for name, each in wanted.items() if each})}"
        for _ in range(MOST_PAGES):
            answer, links = _asked(page)
            items = msgspec.convert(answer, list[Any])
            infos = [each for each in (_or(item, _Info, None) for item in items) if each is not None]
            if items and not infos:
                raise ValueError("nothing of it is a repository")
            found += [_model(info) for info in infos if is_repository(info.id)]
            page = str(httpx2.URL(page).join(links.get("next", {}).get("url", "")))
            if len(found) >= asked.limit or "next" not in links or origin(page) != origin(endpoint()):
                break
    return found[: asked.limit]


def repository(name: str, revision: str | None = None) -> HubRepository:
    """Contents of a repository now, or at ``revision``. Raises :class:`HubFailed`."""
    if not is_repository(name) or not re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
        raise HubFailed(_no_repository(name))
    with _failures(name):
        at = f"/revision/{quote(revision, safe='')}" if revision is not None else ""
        info = msgspec.convert(_asked(f"{endpoint()}/api/models/{name}{at}?blobs=true")[0], _Info)
        if info.sha is None:
            raise ValueError("it has no revision")
    if info.id.lower() != name.lower():
        raise HubFailed(f"{host()} calls {name} {info.id} now. Ask for it by that name, if it is what you want.")
    if not is_repository(info.id):
        raise HubFailed(_no_repository(info.id))
    siblings = {each.rfilename: each for each in info.siblings or [] if each.size is not None}
    if len(siblings) > MOST_FILES:
        raise HubFailed(f"{name} has {len(siblings):,} files, and Kvasir reads {MOST_FILES:,} at most.")
    files = [
        HubFile(
            name=each.rfilename,
            bytes=each.size or 0,
            sha256=each.lfs.sha256 if each.lfs else "",
            blob=each.blobId or "",
        )
        for each in siblings.values()
        if each.lfs or each.blobId  # else nothing says what it must hold
    ]
    found, refused = variants_of(files, _quantisation(info))
    return HubRepository(model=_model(info), revision=info.sha, variants=found, refused=refused)


def endpoint() -> str:
    """The hub's address. Raises :class:`HubFailed` where ``HF_ENDPOINT`` is none."""
    address = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or ENDPOINT
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not address.isprintable():
        raise HubFailed(
            f"HF_ENDPOINT is {address!r}, which is not the address of a hub, such as https://huggingface.co. "
            "Correct it, or unset it."
        )
    return address


def address_of(repository: str, file: str, revision: str, at: str) -> str:
    """Address of a file on the hub ``at`` an address."""
    return f"{at}/{repository}/resolve/{quote(revision, safe='')}/{quote(file)}"


def parameters(size: str) -> str:
    """A range of sizes as the hub wants it: of "3B-9B", "-8B" or "20B-". Raises :class:`HubFailed`."""
    if not size:
        return ""
    found = re.fullmatch(r"(\d+(?:\.\d+)?[KMBT])?-(\d+(?:\.\d+)?[KMBT])?", size, re.IGNORECASE)
    if found is None or not any(found.groups()):
        raise HubFailed(f"{size!r} is not a range of sizes. Give one as 3B-9B, -8B or 20B-.")
    return ",".join(f"{name}:{end.upper()}" for name, end in zip(("min", "max"), found.groups(), strict=True) if end)


def token_of_user() -> str:
    """The user's token for the hub: Kvasir's own, else that of the hub's other programs; "" without one. Raises
    :class:`HubFailed` for a token with characters that no server can be sent."""
    try:
        token = keys.read(server()) or get_token() or ""
    except (OSError, ValueError):  # of the file of the hub's other programs
        token = ""
    if not _can_be_token(token or "none"):
        raise HubFailed(
            f"The token for {host()} has characters that no token has. Correct HF_TOKEN where it is set, or store it "
            "again: kvasir models token."
        )
    return token


def server() -> str:
    """The hub's scheme, host and port, to which alone a token that is stored for it is told."""
    return origin(endpoint())


def host() -> str:
    """The hub's name on the network."""
    return urlsplit(endpoint()).hostname or endpoint()


def asked_at_all() -> None:
    """Raises :class:`HubFailed` where the user wants no hub to be asked."""
    if constants.is_offline_mode():
        raise HubFailed(OFFLINE)


def check_token(token: str) -> str:
    """The name of the user whose token it is. Raises :class:`HubFailed`."""
    if not _can_be_token(token):
        raise HubFailed(f"That is not a valid token. Create one at {endpoint()}/settings/tokens; it begins with hf_.")
    with _failures(""):
        answer, _ = _asked(f"{endpoint()}/api/whoami-v2", token)
        return plain(msgspec.convert(answer["name"], str), most=_WORD)


def _can_be_token(token: str) -> bool:
    return token.isascii() and token.isprintable() and bool(token.strip())


def refusal(name: str) -> str:
    """Sentences that say what to do where a repository is not given to this user."""
    page = f"{endpoint()}/{name}"
    if token_of_user():
        return (
            f"{name} is not given to your account. Ask for it on {page} (its owner may want to read and agree first), "
            "or store another token: kvasir models token."
        )
    return (
        f"{name} is given to people who are signed in and have agreed to its terms. Agree on {page}, make a token on "
        f"{endpoint()}/settings/tokens, and store it: kvasir models token."
    )


def _no_repository(name: str) -> str:
    return f"{name!r} names no repository. Give ORGANISATION/NAME, as the hub's page of it shows."


def _asked(url: str, token: str = "") -> tuple[Any, dict[str | None, dict[str, str]]]:
    """Request an address: the JSON answer, and the links to further pages. Raises what :func:`_failures` takes."""
    asked_at_all()
    known_by = token or token_of_user()  # a keyring may ask the user to unlock it, which takes the time that it takes
    response = _within(PATIENCE, lambda: _answer(url, known_by))
    hf_raise_for_status(response)
    return json.loads(response.content.decode()), response.links


def _answer(url: str, token: str) -> httpx2.Response:
    """The answer with its content, which is read no further than it may be long."""
    ends, body = time.monotonic() + PATIENCE, bytearray()
    with opened(url, TIMEOUT, token=token) as answer:
        for block in answer.iter_bytes():
            body += block
            if len(body) > MOST_BYTES:
                raise HubFailed(f"{host()} answers with more than {MOST_BYTES >> 20} MB. Check HF_ENDPOINT.")
            if time.monotonic() > ends:
                raise httpx2.ReadTimeout("it goes on for too long", request=answer.request)
        headers = {
            name: value
            for name, value in answer.headers.items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        }
        return httpx2.Response(answer.status_code, headers=headers, content=bytes(body), request=answer.request)


def _within(seconds: float, work: Callable[[], T]) -> T:
    """Result or error of ``work``, run in a thread. Raises httpx2.ReadTimeout after ``seconds``, as a server may send a
    byte now and then for ever, and :class:`stopping.Stopped`."""
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=run, name="hub", daemon=True).start()
    stop = stopping.current()
    try:
        with stop.waking(lambda: done.put((None, None))):
            value, error = done.get(timeout=seconds)
    except queue.Empty:
        raise httpx2.ReadTimeout("it goes on for too long") from None
    stop.check()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def _or(value: object, kind: type[T], default: T) -> T:
    """``value`` where it is what it should be."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return default


def _word(value: object) -> str:
    """Short plain text of a value that a repository's owner wrote; "" for one that is not text."""
    return plain(value, most=_WORD) if isinstance(value, str) else ""


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _model(info: _Info) -> HubModel:
    tags = [tag for tag in _or(info.tags, list[Any], []) if isinstance(tag, str)]
    formats: list[ModelFormat] = [kind for kind in ("safetensors", "gguf") if kind in tags]
    parameters = _field(info.safetensors, "total") if info.safetensors else _field(info.gguf, "total")
    architectures = _or(_field(info.config, "architectures"), list[str], []) or [_field(info.gguf, "architecture")]
    return HubModel(
        repository=info.id,
        downloads=info.downloads or 0,
        likes=info.likes or 0,
        modified=_day(info.lastModified),
        licence=next((_word(tag.removeprefix("license:")) for tag in tags if tag.startswith("license:")), ""),
        gated=bool(info.gated),
        formats=formats,
        parameters=_or(parameters, _Count, 0),
        architecture=_word(architectures[0]),
        quantisation=_method(info),
    )


def _day(time: str | None) -> str:
    """The day of a time such as 2026-11-24T10:00:00.000Z."""
    found = re.match(r"\d{4}-\d\d-\d\d", time or "", re.ASCII)
    return found[0] if found else ""


def _quantisation(info: _Info) -> str:
    """Quantisation method of the safetensors, or else their dtype."""
    if method := _method(info):
        return method
    parameters = _or(_field(info.safetensors, "parameters"), dict[str, _Count], {})
    return _word(max(parameters, key=parameters.__getitem__, default="").lower())


def _method(info: _Info) -> str:
    """Quantisation method of the safetensors; "" for none."""
    return _word(_field(_field(info.config, "quantization_config"), "quant_method"))


@contextmanager
def _failures(name: str) -> Iterator[None]:
    """Whatever asking the hub and reading its answer raises, as one sentence."""
    where = host()
    try:
        yield
    except hub_errors.GatedRepoError:
        raise HubFailed(refusal(name)) from None
    except hub_errors.RevisionNotFoundError:
        raise HubFailed(f"{name} has no such revision. Leave it out to take the newest.") from None
    except hub_errors.RepositoryNotFoundError:
        hidden = "" if token_of_user() else " A private one needs a token: kvasir models token."
        raise HubFailed(f"{where} has no model {name}. Check how it is written.{hidden}") from None
    except hub_errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status == 401:
            raise HubFailed("The hub does not know your token. Store a new one: kvasir models token.") from None
        if status == 429:
            raise HubFailed(f"{where} wants fewer questions (HTTP 429). Wait a minute and try again.") from None
        raise HubFailed(f"{where} answers with an error (HTTP {status}). Try again later.") from None
    except httpx2.TimeoutException:
        raise HubFailed(f"{where} does not answer in time. Check the network and try again.") from None
    except httpx2.HTTPError as error:
        if (refused := certificate_error(error)) is not None:
            raise HubFailed(trust.refusal(where, refused)) from None
        raise HubFailed(unreachable(way_to(endpoint()), error, "Check the network and try again.")) from None
    except _NO_ANSWER:
        # A page of a network that wants a login, or another program's, where the hub's answer should be.
        raise HubFailed(
            f"What answers at {where} is not the hub. Check that no login page of a network lies in between, and "
            "HF_ENDPOINT."
        ) from None
