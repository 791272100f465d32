"""Models on the disk, on the hub and on their way: records of the operations on them, which `kvasir models … --json`
prints too, one object a line."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.protocol.base import Message, Part
from engine.protocol.making import MakeProgress, MakeReport
from engine.protocol.recommended import DraftOffer, Recommendation
from engine.protocol.records import Fit

ModelFormat = Literal["safetensors", "gguf"]
Held = Literal["fetched", "copied", "referred", "found"]
"""Way of a model into the library: from the hub, by an import that copied it or named where it lies, or it was found
where models are looked for."""
Verdict = Literal["fits", "tight", "too large"]
DownloadState = Literal["waiting", "running", "paused", "failed", "done"]


class HubFile(Part, frozen=True):
    """``sha256`` or, of a small file, git's ``blob`` says what it must hold."""

    name: str
    bytes: int
    sha256: str = ""
    blob: str = ""


class StoredModel(Message, frozen=True):
    """A model that is on this machine."""

    name: str
    path: str
    format: ModelFormat
    bytes: int
    origin: str = "Kvasir"
    """The program whose folder it lies in: "Kvasir", "Ollama", "LM Studio", "Jan", "GPT4All", "Hugging Face"."""
    bundled: bool = False
    repository: str = ""
    """Repository that it was downloaded from, as ORGANISATION/NAME; "" where that is not known."""
    revision: str = ""
    draft: str = ""
    """Path of the draft model that belongs to it."""
    held: Held = "found"
    missing: bool = False
    """It was imported from where it lies, and is not there any more."""
    quantisation: str = ""
    """Name such as "Q4_K_M", "gptq" or "bfloat16"; "" where it is not known."""
    embedding_bytes: int = 0
    """Bytes of the token embeddings and the output head of safetensors, which quantising leaves as they are."""
    packable_bytes: int = 0
    """Bytes of the matrices in the language model's layers of safetensors, which quantising packs; 0: not known."""
    made_of: str = ""
    """Name of the model that Kvasir made it of."""
    report: MakeReport | None = None
    """Measurements of what was won and lost then."""
    sees: bool = False
    """True if it comes with a vision tower."""
    embeds: bool = False
    """True if it is made for embeddings of texts."""
    about: str = ""
    """Purpose, as a clause, where that is known: of those that come with Kvasir and of recommended ones."""


class ModelFolder(Message, frozen=True):
    """A folder in which models are looked for. ``store``: it is the one that models are downloaded to."""

    path: str
    store: bool = False
    there: bool = True
    """False where its disk is not there, say."""
    models: int = 0
    bytes: int = 0
    """Bytes of these models."""
    free: int = 0
    """Bytes on its disk; ``total``: of that disk."""
    total: int = 0


class Leftover(Message, frozen=True):
    """A file or folder (``path``) that may be deleted and is no model. ``cached``: weights that were quantised by a
    load, for the next one; else what was interrupted: a copy, or a model that was being made."""

    name: str
    path: str
    bytes: int
    cached: bool = False


class StoreMove(Message, frozen=True):
    """The store being moved to another folder: bytes that are there and verified, of all."""

    path: str
    done: int
    total: int


class ModelDetails(Message, frozen=True):
    """Details from a model's headers. ``width``: of a token's vector (the hidden size)."""

    name: str
    path: str
    format: ModelFormat
    architecture: str
    parameters: int
    quantisation: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    context: int
    """Tokens."""
    vocabulary: int
    licence: str = ""
    """Licence that its files state; "" where they do not."""
    repository: str = ""
    revision: str = ""
    files: list[HubFile] = []
    template: str = ""
    """Its chat template, "" where it brings none."""
    metadata: list[tuple[str, str]] = []
    """Keys of its GGUF file or of config.json, and their values, cut to a length that can be shown."""
    notices: list[str] = []
    """Notices for people about how it is served."""


class TextToken(Part, frozen=True):
    id: int
    text: str
    special: bool = False


class TextTokens(Message, frozen=True):
    """A text as a model's tokenizer reads it."""

    tokens: list[TextToken] = []


class HubModel(Message, frozen=True):
    """A repository as a search finds it."""

    repository: str
    downloads: int = 0
    """Downloads of the last 30 days."""
    likes: int = 0
    modified: str = ""
    """The day of its last change, as 2026-11-25."""
    licence: str = ""
    gated: bool = False
    """True if its owner wants to be asked first, on the hub's page of it."""
    formats: list[ModelFormat] = []
    parameters: int = 0
    """0: not known."""
    architecture: str = ""
    quantisation: str = ""
    """The method that packs its safetensors, as "gptq" or "awq"; "" where they are not quantised."""


class HubVariant(Part, frozen=True):
    """One model of a repository: a GGUF file (in all its parts), or everything next to config.json."""

    name: str
    format: ModelFormat
    quantisation: str
    """Name such as "Q4_K_M", "gptq" or "bfloat16"; "" where it is not known."""
    bytes: int
    files: list[HubFile] = []


class HubRepository(Message, frozen=True):
    """All that Kvasir can use of a repository at one revision."""

    model: HubModel
    revision: str
    variants: list[HubVariant] = []
    refused: str = ""
    """Reason that nothing of it can be used, as a sentence; "" where something can."""


class Download(Message, frozen=True):
    """A model on its way."""

    id: str
    repository: str
    variant: str
    state: DownloadState
    done: int = 0
    total: int = 0
    """Bytes."""
    rate: float = 0.0
    """Bytes a second, lately."""
    sentence: str = ""
    """Reason that it failed, or what it waits for."""
    path: str = ""
    """Path of the model, once it is done."""


class KindFit(Part, frozen=True):
    """Capacity of a kind of KV cache. ``bytes_per_token``: of each further token of a text, in the layers that keep all
    of it; ``tokens``: of all chats together."""

    kind: str
    bytes_per_token: float
    tokens: int


class DraftSpeed(Part, frozen=True):
    """Gain of a proposer when this model was used: ``tokens_per_step``, and tokens a second (``rate``)."""

    proposer: str
    tokens_per_step: float
    rate: float


class Suggestion(Part, frozen=True):
    """Suggestion that would make a model fit, or fit better: ``sentence`` for people.

    ``value``: of "kv_kind" the kind, of "context" the tokens, of "variant" its name, of "unload" and "programs" bytes.
    """

    kind: Literal["kv_kind", "context", "variant", "unload", "programs"]
    sentence: str
    value: str


class FitReport(Message, frozen=True):
    """Report on whether a model fits, planned from its headers against what is free now."""

    name: str
    verdict: Verdict
    """``tight``: it loads, with less context than is usual or with a smaller cache."""
    sentence: str
    """Reason that it is no better, and what would help; "" where it fits."""
    parameters: int
    context: int
    """The longest text that has room, in tokens; ``longest``: that the model can read."""
    longest: int
    quantisation: str = ""
    chats: int = 0
    """Chats of 8,192 tokens that have room together."""
    fit: Fit | None = None
    kinds: list[KindFit] = []
    read_bytes: int = 0
    """Bytes of weights that a step of one token reads."""
    bandwidth: float = 0.0
    """Bytes a second that this device was measured to read."""
    fastest: float = 0.0
    """Tokens a second that memory allows one chat without speculation: the bound, not what is reached. 0: none, the
    processor's caches hold the model."""
    decode: float = 0.0
    """Tokens a second to expect of one chat without speculation; ``prefill``: of reading a prompt. 0: not known."""
    prefill: float = 0.0
    source: str = ""
    """Source of these: "from your runs of …", "estimated from a measurement of some layers"."""
    draft: DraftSpeed | None = None
    """The fastest proposer among this machine's own runs of the model; None: none was used."""
    suggestions: list[Suggestion] = []
    variant: str = ""
    """The name of the repository's variant, where it is one on the hub."""
    assumed: str = ""
    """Sentence on what was not read but assumed; "" where the headers said everything."""


LibraryRecord = (
    StoredModel
    | HubModel
    | HubRepository
    | Download
    | FitReport
    | MakeProgress
    | MakeReport
    | Recommendation
    | DraftOffer
    | ModelFolder
    | Leftover
    | StoreMove
    | ModelDetails
    | TextTokens
)
decode_library_record = msgspec.json.Decoder(LibraryRecord).decode
"""One line of ``--json``. Raises msgspec.DecodeError, msgspec.ValidationError."""
