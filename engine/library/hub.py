"""The hub: search, and what a repository holds. Everything goes through ``huggingface_hub``, so that its environment
variables hold (``HF_ENDPOINT``, ``HF_HUB_OFFLINE``, ``HF_TOKEN``, proxies).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import HfApi, ModelInfo, constants
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils import get_token, logging

from engine.fetching.errors import FetchFailed
from engine.library import keys
from engine.library.variants import variants_of
from engine.protocol.library import HubFile, HubModel, HubRepository, ModelFormat

FOUND = 30
"""Repositories that a search brings, unless more are asked for."""
FIELDS = ["downloads", "likes", "lastModified", "gated", "tags", "safetensors", "gguf", "config"]
TIMEOUT = 20.0
logging.set_verbosity_error()  # its notes on each retry are not for people: what comes of them is
OFFLINE = "The hub is not asked while HF_HUB_OFFLINE is set. Unset it to search and fetch."


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
    with _failures(asked.text):
        found = _api().list_models(
            search=asked.text or None,
            author=asked.author or None,
            filter=tags or None,
            pipeline_tag=asked.task or None,
            num_parameters=asked.parameters or None,
            sort=asked.sort,  # type: ignore[arg-type]
            limit=asked.limit,
            expand=FIELDS,  # type: ignore[arg-type]
        )
        return [_model(info) for info in found]


def repository(name: str, revision: str | None = None) -> HubRepository:
    """What a repository holds now, or at ``revision``. Raises :class:`HubFailed`."""
    if name.count("/") != 1:
        raise HubFailed(_no_repository(name))
    with _failures(name):
        info = _api().model_info(name, revision=revision, files_metadata=True, timeout=TIMEOUT)
    files = [
        HubFile(
            name=each.rfilename,
            bytes=each.size or 0,
            sha256=each.lfs.sha256 if each.lfs else "",
            blob=each.blob_id or "",
        )
        for each in info.siblings or []
        if each.size is not None
    ]
    found, refused = variants_of(files, _quantisation(info))
    return HubRepository(model=_model(info), revision=info.sha or "", variants=found, refused=refused)


def endpoint() -> str:
    """The hub's address."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT


def parameters(size: str) -> str:
    """A range of sizes as the hub wants it: of "3B-9B", "-8B" or "20B-". Raises :class:`HubFailed`."""
    if not size:
        return ""
    found = re.fullmatch(r"(\d+(?:\.\d+)?[KMBT])?-(\d+(?:\.\d+)?[KMBT])?", size, re.IGNORECASE)
    if found is None or not any(found.groups()):
        raise HubFailed(f"{size!r} is no range of sizes. Give one as 3B-9B, -8B or 20B-.")
    return ",".join(f"{name}:{end.upper()}" for name, end in zip(("min", "max"), found.groups(), strict=True) if end)


def token_of_user() -> str:
    """What the user is known by on the hub: Kvasir's own, else that of the hub's other programs; "" without one."""
    return keys.read(host()) or get_token() or ""


def host() -> str:
    """The hub's name on the network."""
    return urlsplit(endpoint()).hostname or endpoint()


def asked_at_all() -> None:
    """Raises :class:`HubFailed` where the user wants no hub to be asked."""
    if constants.is_offline_mode():
        raise HubFailed(OFFLINE)


def check_token(token: str) -> str:
    """The name of the user whose token it is. Raises :class:`HubFailed`."""
    if not token.isascii() or not token.isprintable() or not token.strip():
        raise HubFailed(f"That is no token. One is made on {endpoint()}/settings/tokens and begins with hf_.")
    with _failures(""):
        return str(HfApi(endpoint=endpoint(), token=token).whoami()["name"])


def refusal(name: str) -> str:
    """What to do where a repository is not given to this user."""
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


def _api() -> HfApi:
    return HfApi(endpoint=endpoint(), token=token_of_user() or False, library_name="kvasir")


def _model(info: ModelInfo) -> HubModel:
    tags = info.tags or []
    stated: Any = info.gguf or {}
    formats: list[ModelFormat] = [kind for kind in ("safetensors", "gguf") if kind in tags]
    parameters = info.safetensors.total if info.safetensors else stated.get("total", 0)
    architectures: Sequence[str] = (info.config or {}).get("architectures") or [stated.get("architecture", "")]
    return HubModel(
        repository=info.id,
        downloads=info.downloads or 0,
        likes=info.likes or 0,
        modified=_day(info.last_modified),
        licence=next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), ""),
        gated=bool(info.gated),
        formats=formats,
        parameters=parameters or 0,
        architecture=architectures[0] or "",
    )


def _day(time: datetime | None) -> str:
    return time.date().isoformat() if time else ""


def _quantisation(info: ModelInfo) -> str:
    """What packs the weights of safetensors, or else their dtype."""
    method = ((info.config or {}).get("quantization_config") or {}).get("quant_method")
    if method:
        return str(method)
    parameters = info.safetensors.parameters if info.safetensors else {}
    return max(parameters, key=parameters.__getitem__, default="").lower()


@contextmanager
def _failures(name: str) -> Iterator[None]:
    """Whatever the hub's client raises, as one sentence."""
    where = host()
    try:
        yield
    except hub_errors.OfflineModeIsEnabled:
        raise HubFailed(OFFLINE) from None
    except hub_errors.GatedRepoError:
        raise HubFailed(refusal(name)) from None
    except hub_errors.RevisionNotFoundError:
        raise HubFailed(f"{name} has no such revision. Leave it out to take the newest.") from None
    except hub_errors.RepositoryNotFoundError:
        hidden = "" if token_of_user() else " A private one needs a token: kvasir models token."
        raise HubFailed(f"{where} has no model {name}. Check how it is written.{hidden}") from None
    except hub_errors.HFValidationError:
        raise HubFailed(_no_repository(name)) from None
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
        raise HubFailed(f"{where} cannot be reached ({error}). Check the network and try again.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        # A page of a network that wants a login, or another program's, where the hub's answer should be.
        raise HubFailed(
            f"What answers at {where} is not the hub. Check that no login page of a network lies in between, and "
            "HF_ENDPOINT."
        ) from None
