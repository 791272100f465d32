"""Models on their way: a queue that is kept on the disk, several at once, paused and resumed where they ended.

A download is a folder with ``job.json``, ``files/`` and a ``lock``, which one process holds while it fetches: one that
is killed leaves everything where the next one goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from engine.base.errors import MOST, CheckpointError, plain
from engine.base.fetching import room
from engine.base.fetching.download import fetch, stored
from engine.base.fetching.errors import FetchFailed, RefusedByServer
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.library import hub, store
from engine.library.variants import is_repository, is_safe
from engine.protocol.library import Download, DownloadState, HubRepository, HubVariant

log = logging.getLogger(__name__)
_REPORTS = 0.25
"""Seconds between two reports of one download."""
_RATE = 3.0
"""Seconds that its rate is taken over."""
Report = Callable[[Download], None]


class Job(msgspec.Struct, frozen=True):
    """``job.json``. ``added``: seconds since 1970; the order of the queue."""

    id: str
    repository: str
    revision: str
    endpoint: str
    variant: HubVariant
    added: float
    failed: str = ""

    @property
    def total(self) -> int:
        return self.variant.bytes


class _Stopped(Exception):  # noqa: N818 - what the user wanted
    """Paused or cancelled while it was fetched."""


class Pace:
    """Limit of ``rate`` bytes a second, together over all that take from it; 0: no limit."""

    def __init__(self, rate: float = 0.0) -> None:
        self.rate = rate
        self._lock, self._due = threading.Lock(), time.monotonic()

    def wait(self, count: int) -> float:
        """Take ``count`` bytes; returns the seconds until they are due."""
        if self.rate <= 0:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._due = max(self._due, now) + count / self.rate
            return self._due - now


def add(found: HubRepository, variant: HubVariant) -> Job:
    """Put a variant at the end of the queue; where it is in it already, that one goes on. Raises
    :class:`FetchFailed`."""
    job = Job(_id(found, variant), found.model.repository, found.revision, hub.endpoint(), variant, time.time())
    # Not while the same one is cancelled.
    with room.disk_errors(store.store_folder()), store.changing():
        (_folder(job.id) / "files").mkdir(parents=True, exist_ok=True)
        return again(read(job.id) or job)


def again(job: Job) -> Job:
    """The download, not failed any more. Raises :class:`FetchFailed`."""
    job = msgspec.structs.replace(job, failed="")
    with room.disk_errors(store.store_folder()):
        _write(job)
    return job


def queue() -> list[Job]:
    """All downloads that are not done, in order."""
    try:
        names = [folder.name for folder in (store.store_folder() / store.UNFINISHED).iterdir()]
    except OSError:
        return []
    return sorted(filter(None, map(read, names)), key=lambda job: (job.added, job.id))


def read(id: str) -> Job | None:
    """The download of that name; None where there is none."""
    try:
        job = decode_file(_folder(id) / "job.json", Job)
    except UnreadableFileError:
        return None
    # What is not so was written by nobody here, and its folder is what is worked on.
    sound = job is not None and job.id == id and is_repository(job.repository)
    return job if job is not None and sound and all(is_safe(file.name) for file in job.variant.files) else None


def standing(job: Job) -> Download:
    """Progress of a download that this process does not work on; "running" is one of another process's."""
    state: DownloadState = "failed" if job.failed else "paused"
    try:
        with _alone(_folder(job.id), job):
            pass
    except DownloadBusy:
        state = "running"
    except FetchFailed:
        pass  # it was cancelled this moment
    done = store.fetched(_folder(job.id) / "files", job.variant.files)
    return _told(job, state, done, sentence=job.failed if state == "failed" else "")


class DownloadBusy(FetchFailed):
    """Another process works on the download."""


class Downloads:
    """Works on the queue in threads. ``report`` is called from them."""

    def __init__(self, report: Report, at_once: int = 1, rate: float = 0.0) -> None:
        self.pace = Pace(rate)
        self._report = report
        self._running: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._started: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="download")

    def start(self, job: Job) -> None:
        """Fetch it when a thread is free."""
        with self._lock:
            if job.id in self._running:
                return
            stop = self._running[job.id] = threading.Event()
        self._report(_told(job, "waiting", store.fetched(_folder(job.id) / "files", job.variant.files)))
        self._started.append(self._threads.submit(self._run, job, stop))

    def pause(self, id: str) -> None:
        """Stop fetching it; what is there is kept."""
        with self._lock:
            running = self._running.get(id)
        if running is not None:
            running.set()

    def finish(self) -> None:
        """Wait until all that was started has ended; signals are answered meanwhile, on every system."""
        while wait(self._started, timeout=0.5).not_done:
            pass
        self._threads.shutdown()

    def _run(self, job: Job, stop: threading.Event) -> None:
        try:
            if stop.is_set():
                raise _Stopped
            self._report(self._fetched(job, stop))
        except _Stopped:
            self._report(_told(job, "paused", store.fetched(_folder(job.id) / "files", job.variant.files)))
        except BrokenPipeError:
            return  # whoever was told is gone; the next one goes on
        except Exception as error:
            log.info("download", exc_info=error)
            # Nothing else is expected of what was downloaded, its disk and its server.
            sentence = str(error) if isinstance(error, FetchFailed | CheckpointError) else _unexpected(job, error)
            if not isinstance(error, DownloadBusy):
                with contextlib.suppress(OSError):
                    _write(msgspec.structs.replace(job, failed=sentence))
            done = store.fetched(_folder(job.id) / "files", job.variant.files)
            self._report(_told(job, "failed", done, sentence=sentence))
        finally:
            with self._lock:
                self._running.pop(job.id, None)

    def _fetched(self, job: Job, stop: threading.Event) -> Download:
        """Fetch it, check it and move it into the store."""
        hub.asked_at_all()
        progress = _Progress(job, self._report, self.pace, stop)
        with contextlib.ExitStack() as held:
            held.enter_context(room.disk_errors(store.store_folder()))
            with store.changing():  # not while the store is moved, whose move sees from now on that this runs
                folder = _folder(job.id)
                held.enter_context(_alone(folder, job))
            files = folder / "files"
            target = store.own_folder(job.repository, [file.name for file in job.variant.files])
            missing = [file for file in job.variant.files if not store.has(target, file, progress)]
            token = hub.token_of_user() if job.endpoint == hub.endpoint() else ""
            remotes = [
                store.remote(file, hub.address_of(job.repository, file.name, job.revision, job.endpoint), token)
                for file in sorted(missing, key=lambda file: file.bytes)
            ]
            needed = sum(remote.bytes - stored(remote, files) for remote in remotes)
            if needed:
                room.room_for(folder, needed + room.MARGIN, job.repository)
            progress.begin(job.total - needed)
            for remote in remotes:
                try:
                    fetch(remote, files, progress)
                except RefusedByServer as refused:
                    if refused.status in (401, 403):
                        raise FetchFailed(hub.refusal(job.repository)) from None
                    raise
            with store.changing():
                gone = [file.name for file in job.variant.files if not _there(file.name, files, target)]
                if gone:
                    raise FetchFailed(f"{gone[0]} was taken away meanwhile. Try again.")
                path = store.move_in(job.repository, job.variant, job.revision, files)
                if all(found != path for _, found in store.models()):
                    raise FetchFailed(
                        f"{path} is not found among the models, though it was downloaded. Choose another folder for "
                        "downloads, whose disk tells capital letters from small ones: kvasir models folders."
                    )
        store.clear(folder)
        return _told(job, "done", job.total, path=str(path))


def _there(name: str, files: Path, target: Path) -> bool:
    return (files / name).is_file() or (target / name).is_file()


class _Progress:
    """Counts what comes, tells of it now and then, keeps the pace, and stops."""

    def __init__(self, job: Job, report: Report, pace: Pace, stop: threading.Event) -> None:
        self._job, self._report, self._pace, self._stop = job, report, pace, stop
        self._done, self._told = 0, 0.0
        self._times: list[tuple[float, int]] = []

    def begin(self, done: int) -> None:
        self._done = done
        self._tell(time.monotonic())

    def __call__(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._told >= _REPORTS:
            self._tell(now)
        if self._stop.is_set() or self._stop.wait(self._pace.wait(max(0, count))):
            raise _Stopped

    def _tell(self, now: float) -> None:
        self._told = now
        self._times = [*(each for each in self._times if now - each[0] <= _RATE), (now, self._done)]
        (first, before), seconds = self._times[0], now - self._times[0][0]
        rate = max(0.0, (self._done - before) / seconds) if now > first else 0.0
        self._report(_told(self._job, "running", self._done, rate=rate))


def cancel(job: Job) -> None:
    """Delete a download that nobody works on. Raises :class:`FetchFailed` where another Kvasir does, and OSError."""
    # Whoever adds or starts the same one meanwhile has it anew, in a folder of its own.
    with store.changing():
        folder = _folder(job.id)
        gone = folder.with_name(f"{job.id}.gone-{os.getpid()}")
        if sys.platform == "win32":  # a folder in which a file is open cannot be renamed there: not ours, nor another's
            with _alone(folder, job):
                pass
            try:
                folder.replace(gone)
            except PermissionError:
                raise _busy(job) from None
        else:
            with _alone(folder, job):
                folder.replace(gone)
    store.clear(gone)


@contextlib.contextmanager
def _alone(folder: Path, job: Job) -> Iterator[None]:
    """The only one that works on a download. Raises :class:`DownloadBusy`, and FetchFailed where it was cancelled."""
    with contextlib.ExitStack() as held:
        try:
            descriptor = held.enter_context(lock(folder / "lock", _busy(job)))
            there = os.path.samestat(os.fstat(descriptor), (folder / "lock").stat())
        except FileNotFoundError:
            there = False
        if not there:
            raise FetchFailed(f"The download of {job.repository} was cancelled meanwhile. Download it again.")
        yield


def _unexpected(job: Job, error: Exception) -> str:
    return plain(
        f"The download of {job.repository} failed for a reason that Kvasir does not know ({type(error).__name__}: "
        f"{error}). Try again.",
        most=MOST,
    )


def _busy(job: Job) -> DownloadBusy:
    return DownloadBusy(f"Another Kvasir is downloading {job.repository}. Wait for it, or stop it.")


def _told(
    job: Job, state: DownloadState, done: int, *, rate: float = 0.0, sentence: str = "", path: str = ""
) -> Download:
    return Download(
        id=job.id,
        repository=job.repository,
        variant=job.variant.name,
        state=state,
        done=done,
        total=job.total,
        rate=rate,
        sentence=sentence,
        path=path,
    )


def _id(found: HubRepository, variant: HubVariant) -> str:
    said = "\n".join((hub.endpoint(), found.model.repository, found.revision, variant.name))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _folder(id: str) -> Path:
    return store.store_folder() / store.UNFINISHED / id


def _write(job: Job) -> None:
    new = _folder(job.id) / "job.json.new"
    new.write_bytes(msgspec.json.encode(job))
    new.replace(_folder(job.id) / "job.json")
