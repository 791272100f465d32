"""The table of operations: all that a client asks for besides answers of a model, one row each.

A row says how an operation is called, what it is given, what it reports meanwhile, what it answers and where it runs.
The websocket (:class:`Call`), the terminal and child processes are doors onto it. The function behind a row is named in
`engine/services/operations.py`; a request's docstring and descriptions are the help of its command in the terminal.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from engine.protocol.access import AddedKey, AddKey, ListKeys, NamedKey, RevokeKey
from engine.protocol.base import DeviceName, Part, Quantise
from engine.protocol.calls import NoEvent, Operation
from engine.protocol.embedding import EmbeddedTexts, EmbedTexts, TextEmbeddings
from engine.protocol.from_engine import Delta, Finished
from engine.protocol.lab import (
    CompareColumns,
    LabComparison,
    LabEvent,
    LabIndex,
    LabOutcome,
    LabProgress,
    LabResult,
    ListExperiments,
    RunExperiment,
)
from engine.protocol.library import (
    Download,
    FitReport,
    HubModel,
    HubRepository,
    HubVariant,
    Leftover,
    ModelDetails,
    ModelFolder,
    StoredModel,
    StoreMove,
    TextTokens,
)
from engine.protocol.making import MakeProgress
from engine.protocol.mcp import (
    AddServer,
    AllowTool,
    CallTool,
    ListServers,
    LogIn,
    LoginPage,
    McpServer,
    RemoveServer,
    ToolOutcome,
    ToolProgress,
)
from engine.protocol.recommended import DraftOffer, Purpose, Recommended
from engine.protocol.remotes import (
    AddedRemote,
    AddRemote,
    ListRemoteModels,
    ListRemotes,
    OfferedModel,
    RemoteServer,
    RemoveRemote,
)
from engine.protocol.serving import HttpRequests, ListenFor, Listening, WatchRequests
from engine.protocol.to_engine import Generate

Model = Annotated[str, Meta(description="A model's name, or the path of its folder or GGUF file.")]
Repository = Annotated[str, Meta(description="ORGANISATION/NAME, as the hub's page of it shows.")]
Revision = Annotated[str | None, Meta(description="A commit or a tag; the newest if left out.")]
Device = Annotated[
    DeviceName,
    Meta(description="auto, cpu, cuda (the GPU with the most free memory), cuda:1 (the second one) or mps (Apple's)."),
]
Path = str
"""Of a file or folder of the machine on which the operation runs, absolute."""


class ListModels(Part, frozen=True):
    """The models on this machine: Kvasir's own, and those that other programs have."""


class ModelList(Part, frozen=True):
    """``folders``: in which models are looked for. ``watched``: folders and files in which they come and go.
    ``left_out``: sentences on models that cannot be offered."""

    models: list[StoredModel] = []
    folders: list[ModelFolder] = []
    watched: list[str] = []
    left_out: list[str] = []


class SearchModels(Part, frozen=True):
    """Look for models on the hub."""

    text: Annotated[str, Meta(description="Words of its name.")] = ""
    format: Annotated[Literal["", "gguf", "safetensors"], Meta(description="gguf or safetensors.")] = ""
    author: Annotated[str, Meta(description="Of this organisation.")] = ""
    licence: Annotated[str, Meta(description="As apache-2.0.")] = ""
    size: Annotated[str, Meta(description="Parameters, as 3B-9B, -8B or 20B-.")] = ""
    fits: Annotated[bool, Meta(description="Only what fits into what is free now, in 4 bits.")] = False
    sort: Annotated[
        Literal["downloads", "likes", "trending_score", "last_modified"],
        Meta(description="downloads, likes, trending_score or last_modified."),
    ] = "downloads"
    limit: Annotated[int, Meta(ge=1, le=500, description="How many.")] = 30


class ShowRepository(Part, frozen=True):
    """Show which loadable variants a repository of the hub holds, and how large each is."""

    repository: Repository
    revision: Revision = None


class AddDownload(Part, frozen=True):
    """Put a model into the list of downloads."""

    repository: Repository
    variant: Annotated[
        str, Meta(description="Which of its models: a name, or its kind as Q4_K_M; needed where it has several.")
    ] = ""
    revision: Revision = None


class ResumeDownload(Part, frozen=True):
    """Go on with a download that was stopped or failed."""

    id: Annotated[str, Meta(description="The download's ID, as `kvasir models downloads` shows it.")]
    limit: Annotated[float, Meta(ge=0, description="At most this number of MB a second; 0: no limit.")] = 0.0


class ListDownloads(Part, frozen=True):
    """Models that are on their way: those that wait, and those that were stopped or failed."""

    cancel: Annotated[str, Meta(description="Delete the download with this ID, and what it brought.")] = ""


class FitModel(Part, frozen=True):
    """Say whether a model fits this machine, and how fast it will be, from its headers; it need not be downloaded."""

    model: Annotated[str, Meta(description="A model on this machine, or ORGANISATION/NAME on the hub.")]
    variant: Annotated[
        str,
        Meta(description="Of a repository with several: a name or a kind, as Q4_K_M; all if left out."),
    ] = ""
    context: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Longest text, in tokens. Fewer take less memory; some models can go beyond their own limit."),
    ] = None
    device: Device = "auto"
    quantise: Annotated[
        Quantise, Meta(description="Pack a 16- or 32-bit model while it is loaded: none, nf4, int4 or int8.")
    ] = "none"
    credit: Annotated[int, Meta(ge=0, description="Bytes that a model which is unloaded first holds.")] = 0


class OutlineModel(Part, frozen=True):
    """Fetch the headers of a repository's models, or of the ``variant``, into ``folder``."""

    repository: str
    folder: Path
    variant: str = ""


class Outline(Part, frozen=True):
    """Headers of a model in files that are holes for the rest. ``path`` is what plans a load; ``header`` the variant
    whose headers they are, ``variants`` all that they are to be planned for."""

    path: Path
    header: HubVariant
    variants: list[HubVariant]


class OfferDrafts(Part, frozen=True):
    """List what can draft for a model: on this machine, in its own file, and among the recommended ones."""

    model: Model
    device: Device = "auto"


class Recommend(Part, frozen=True):
    """Models to begin with, those that run best here first. Asks no hub."""

    purpose: Annotated[Purpose | Literal[""], Meta(description="chat, code, reasoning, vision or small.")] = ""
    device: Device = "auto"


class DescribeModel(Part, frozen=True):
    """Show what a model is, from its headers: nothing is loaded."""

    model: Model


class ReadTokens(Part, frozen=True):
    """A text as a model's tokenizer reads it: its tokens, and how many they are."""

    model: Model
    text: Annotated[str | None, Meta(description="The text; standard input if left out.")] = None


class LookAtDisk(Part, frozen=True):
    """Show how much disk space models take, what is free, and what else could be deleted."""

    delete: Annotated[str, Meta(description="Delete this leftover, by the path that is shown.")] = ""


class DiskUse(Part, frozen=True):
    models: list[StoredModel] = []
    folders: list[ModelFolder] = []
    downloads: list[Download] = []
    leftovers: list[Leftover] = []


class ChangeFolders(Part, frozen=True):
    """The folders in which models are looked for, and the one that they are downloaded to."""

    add: Annotated[Path | None, Meta(description="Look for models in this folder and below it.")] = None
    remove: Annotated[Path | None, Meta(description="Look there no more. Nothing is deleted.")] = None
    downloads: Annotated[Path | None, Meta(description="Download models to this folder from now on.")] = None
    move_to: Annotated[Path | None, Meta(description="Move all that Kvasir downloaded or copied to this folder.")] = (
        None
    )


class Folders(Part, frozen=True):
    """``store``: folder that models are downloaded to. ``moved``: they were moved there, which left ``freed`` bytes
    free where they were."""

    folders: list[ModelFolder]
    store: Path
    moved: bool = False
    freed: int = 0


class ImportModel(Part, frozen=True):
    """Take a model that lies elsewhere into the library: it is used where it is, unless it is copied or moved."""

    path: Annotated[Path, Meta(description="A model's folder, or a GGUF file (any of its parts).")]
    copy: Annotated[bool, Meta(description="Copy it into Kvasir's models.")] = False
    move: Annotated[bool, Meta(description="Move it there; on one disk nothing is written again.")] = False
    name: Annotated[str, Meta(description="What to call it; a copy as ORGANISATION/NAME.")] = ""


class Imported(Part, frozen=True):
    """``name`` and ``path``: those that it has from now on. ``model``: as the list of models has it."""

    name: str
    path: Path
    model: StoredModel | None = None


class ListUnfinished(Part, frozen=True):
    """Models that were begun to be made and are not done. ``discard``: the ID of one that is deleted first."""

    discard: str = ""


class RemoveModel(Part, frozen=True):
    """Delete a model that Kvasir downloaded or copied; forget one that was imported where it lies. What others keep is
    theirs."""

    model: Annotated[str, Meta(description="A downloaded or imported model's name or path.")]


class Removed(Part, frozen=True):
    """``forgotten``: nothing was deleted, as its files are not Kvasir's; else ``freed`` bytes are free again."""

    forgotten: bool = False
    freed: int = 0


LIST_MODELS = Operation("models.list", ListModels, ModelList, NoEvent)
SEARCH_MODELS = Operation("models.search", SearchModels, list[HubModel], NoEvent, hub=True)
SHOW_REPOSITORY = Operation("models.show", ShowRepository, HubRepository, NoEvent, hub=True)
ADD_DOWNLOAD = Operation("models.get", AddDownload, Download, NoEvent, hub=True)
RESUME_DOWNLOAD = Operation("models.resume", ResumeDownload, Download, Download, where="child", hub=True)
LIST_DOWNLOADS = Operation("models.downloads", ListDownloads, list[Download], NoEvent)
FIT_MODEL = Operation("models.fit", FitModel, list[FitReport], NoEvent)
OUTLINE_MODEL = Operation("models.outline", OutlineModel, list[Outline], NoEvent, hub=True)
OFFER_DRAFTS = Operation("models.drafts", OfferDrafts, list[DraftOffer], NoEvent)
RECOMMEND = Operation("models.recommended", Recommend, Recommended, NoEvent)
DESCRIBE_MODEL = Operation("models.details", DescribeModel, ModelDetails, NoEvent)
READ_TOKENS = Operation("models.tokens", ReadTokens, TextTokens, NoEvent)
EMBED_TEXTS = Operation("models.embed", EmbedTexts, TextEmbeddings, EmbeddedTexts)
LOOK_AT_DISK = Operation("models.disk", LookAtDisk, DiskUse, NoEvent)
CHANGE_FOLDERS = Operation("models.folders", ChangeFolders, Folders, StoreMove)
IMPORT_MODEL = Operation("models.import", ImportModel, Imported, StoreMove)
LIST_UNFINISHED = Operation("models.unfinished", ListUnfinished, list[MakeProgress], NoEvent)
REMOVE_MODEL = Operation("models.rm", RemoveModel, Removed, NoEvent)
LIST_EXPERIMENTS = Operation("lab.list", ListExperiments, LabIndex, LabResult)
RUN_EXPERIMENT: Operation[RunExperiment, LabEvent, LabOutcome] = Operation(
    "lab.run",
    RunExperiment,
    LabOutcome,
    LabEvent,  # type: ignore[arg-type]  # a union, which msgspec decodes like a class
)
COMPARE_COLUMNS = Operation("lab.compare", CompareColumns, LabComparison, LabProgress)
ADD_KEY = Operation("keys.add", AddKey, AddedKey, NoEvent)
LIST_KEYS = Operation("keys.list", ListKeys, list[NamedKey], NoEvent)
REVOKE_KEY = Operation("keys.revoke", RevokeKey, NamedKey, NoEvent)
LISTEN_FOR = Operation("server.listen", ListenFor, Listening, NoEvent)
WATCH_REQUESTS = Operation("server.watch", WatchRequests, HttpRequests, HttpRequests)
LIST_SERVERS = Operation("mcp.list", ListServers, list[McpServer], NoEvent)
ADD_SERVER = Operation("mcp.add", AddServer, list[McpServer], NoEvent, where="child")
"""No client of the websocket can do it, which may be on another machine: it names a program to be started here."""
REMOVE_SERVER = Operation("mcp.remove", RemoveServer, McpServer, NoEvent)
LOG_IN = Operation("mcp.login", LogIn, McpServer, LoginPage)
ALLOW_TOOL = Operation("mcp.allow", AllowTool, McpServer, NoEvent)
CALL_TOOL = Operation("mcp.call", CallTool, ToolOutcome, ToolProgress)
LIST_REMOTES = Operation("remotes.list", ListRemotes, list[RemoteServer], NoEvent)
ADD_REMOTE = Operation("remotes.add", AddRemote, AddedRemote, NoEvent, hub=True)
REMOVE_REMOTE = Operation("remotes.remove", RemoveRemote, list[RemoteServer], NoEvent, hub=True)
LIST_REMOTE_MODELS = Operation("remotes.models", ListRemoteModels, list[OfferedModel], NoEvent, hub=True)
ANSWER_REMOTELY = Operation("remotes.answer", Generate, Finished, Delta, hub=True)

OPERATIONS: dict[str, Operation[Any, Any, Any]] = {
    row.name: row
    for row in (
        LIST_MODELS,
        SEARCH_MODELS,
        SHOW_REPOSITORY,
        ADD_DOWNLOAD,
        RESUME_DOWNLOAD,
        LIST_DOWNLOADS,
        FIT_MODEL,
        OUTLINE_MODEL,
        OFFER_DRAFTS,
        RECOMMEND,
        DESCRIBE_MODEL,
        READ_TOKENS,
        EMBED_TEXTS,
        LOOK_AT_DISK,
        CHANGE_FOLDERS,
        IMPORT_MODEL,
        LIST_UNFINISHED,
        REMOVE_MODEL,
        LIST_EXPERIMENTS,
        RUN_EXPERIMENT,
        COMPARE_COLUMNS,
        ADD_KEY,
        LIST_KEYS,
        REVOKE_KEY,
        LISTEN_FOR,
        WATCH_REQUESTS,
        LIST_SERVERS,
        ADD_SERVER,
        REMOVE_SERVER,
        LOG_IN,
        ALLOW_TOOL,
        CALL_TOOL,
        LIST_REMOTES,
        ADD_REMOTE,
        REMOVE_REMOTE,
        LIST_REMOTE_MODELS,
        ANSWER_REMOTELY,
    )
}
