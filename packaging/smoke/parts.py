"""The parts of the trial, each a function of a :class:`Trial`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from smoke import debian, desktop, source, unpacked
from smoke.dialogue import QUESTION, converse, read_history
from smoke.gpu_pack import gpu_pack
from smoke.leftovers import check_gone, check_home, check_system, few
from smoke.listing import Listing, listing
from smoke.programs import Programs, from_deb, from_folder
from smoke.report import Report
from smoke.roots import Roots
from smoke.sandbox import Sandbox
from smoke.terminal import command_line, server
from smoke.traces import traces

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Trial:
    report: Report
    dist: Path
    build: Path
    python: Path
    """Of a checkout's environment, for the part "source"."""
    keep: bool
    forbidden: tuple[Path, ...]
    """Paths of the build machine that no file may hold."""

    @property
    def roots(self) -> Roots:
        return Roots(self.build / "roots")

    @property
    def deb(self) -> Path:
        return self._built("kvasir_*_amd64.deb")

    @property
    def archive(self) -> Path:
        return self._built("kvasir-*-linux-x86_64.tar.zst")

    @property
    def version(self) -> str:
        """Of the programs: a package's own is the same up to what Debian adds behind a hyphen."""
        return self.archive.name.removeprefix("kvasir-").removesuffix("-linux-x86_64.tar.zst")

    def picture(self, name: str) -> Path:
        return self.build / "smoke" / f"{name}.png"

    def _built(self, pattern: str) -> Path:
        """The newest of that name. Raises FileNotFoundError."""
        found = sorted(self.dist.glob(pattern), key=lambda path: path.stat().st_mtime)
        if not found:
            raise FileNotFoundError(f"there is no {pattern} in {self.dist}; make package builds it")
        return found[-1]


def deb(trial: Trial, suite: str) -> None:
    """The .deb on a clean system with only what it declares, used, then removed."""
    report, package = trial.report, trial.deb
    with trial.roots.fresh(suite, "deb", trial.keep) as sandbox:
        report.note(f"it needs {' '.join(debian.install_dependencies(trial.roots, sandbox, suite, package))}")
        before = listing(sandbox.root)
        home, home_before = home_of(sandbox)
        came = debian.install(trial.roots, sandbox, suite, package)
        report.check(came == [debian.PACKAGE], "apt installs it with what it needs", " ".join(came))
        size = int(debian.field(package, "Installed-Size")) * 1024
        report.figure("size", f"{package.stat().st_size / 1e6:.0f} MB packed, {size / 1e9:.2f} GB installed")
        shipped = debian.shipped(sandbox.root)
        manual = sandbox.root / "usr/share/man/man1/kvasir.1.gz"
        report.check(manual.exists(), "there is a man page")
        broken = sandbox.run(["dpkg", "--verify", debian.PACKAGE], as_root=True)
        report.check(broken.code == 0 and not broken.out, "every file is as its checksum says", broken.text)
        programs = from_deb(sandbox.root)
        report.note(f"the menu starts {' '.join(programs.window)}")
        use(trial, sandbox, programs, f"deb-{suite}")
        debian.uninstall(trial.roots, sandbox, suite)
        check_gone(report, sandbox.root, before, shipped)
        check_system(report, sandbox.root, before)
        check_home(report, home, home_before, empty=False)


def home_of(sandbox: Sandbox) -> tuple[Path, Listing]:
    """The user's home and what is in it now."""
    home = sandbox.outside(sandbox.home)
    return home, listing(home)


def use(trial: Trial, sandbox: Sandbox, programs: Programs, name: str) -> None:
    """The command line, the server, the window; the window a second time, ended by a signal."""
    command_line(trial.report, sandbox, programs, trial.version)
    server(trial.report, sandbox, programs)
    converse(trial.report, sandbox, programs, trial.picture(name))
    converse(trial.report, sandbox, programs, trial.picture(f"{name}-again"), by_signal=True)


def menu(trial: Trial) -> None:
    """The .deb where a desktop's tools are: menu entry, file type, icons, manual; and their caches afterwards."""
    suite = "bookworm"
    with trial.roots.fresh(suite, "menu", trial.keep) as sandbox:
        trial.roots.apt(sandbox, suite, ["install", "--no-install-recommends", *desktop.TOOLS])
        debian.install_dependencies(trial.roots, sandbox, suite, trial.deb)
        before = listing(sandbox.root)
        debian.install(trial.roots, sandbox, suite, trial.deb)
        shipped = debian.shipped(sandbox.root)
        desktop.menu(trial.report, sandbox)
        debian.uninstall(trial.roots, sandbox, suite)
        check_gone(trial.report, sandbox.root, before, shipped)
        check_system(trial.report, sandbox.root, before)


def upgrade(trial: Trial) -> None:
    """A later .deb over the present one: chats stay, and go on."""
    suite, report = "bookworm", trial.report
    with trial.roots.fresh(suite, "upgrade", trial.keep) as sandbox:
        debian.install(trial.roots, sandbox, suite, trial.deb)
        programs = from_deb(sandbox.root)
        converse(report, sandbox, programs, trial.picture("upgrade-before"))
        with debian.later_version(trial.deb, trial.build / "smoke") as later:
            debian.install(trial.roots, sandbox, suite, later)
            now = debian.installed(sandbox.root)["kvasir"]
            report.check(now == debian.field(later, "Version"), "the later version is installed", now)
        history = sandbox.outside("/home/u/.local/share/kvasir/history.db")
        kept = read_history(history)
        report.check(len(kept) == 2 and kept[0].content == QUESTION, "the chat is still there", str(kept))
        converse(report, sandbox, programs, trial.picture("upgrade-after"))
        both = read_history(history)
        report.check(both[:2] == kept and len(both) == 4, "it is as it was, beside a new one", str(both))


def uninstall(trial: Trial) -> None:
    """``kvasir uninstall --purge-all`` leaves the home as it was; then the package goes."""
    suite, report = "bookworm", trial.report
    with trial.roots.fresh(suite, "uninstall", trial.keep) as sandbox:
        debian.install_dependencies(trial.roots, sandbox, suite, trial.deb)
        before = listing(sandbox.root)
        debian.install(trial.roots, sandbox, suite, trial.deb)
        shipped = debian.shipped(sandbox.root)
        purge(trial, sandbox, from_deb(sandbox.root), "uninstall", home_of(sandbox)[1])
        debian.uninstall(trial.roots, sandbox, suite)
        check_gone(report, sandbox.root, before, shipped)
        check_system(report, sandbox.root, before)


def purge(trial: Trial, sandbox: Sandbox, programs: Programs, name: str, before: Listing) -> None:
    """A chat, and everything of Kvasir's taken out of the home again, which then is as ``before``."""
    converse(trial.report, sandbox, programs, trial.picture(name))
    done = sandbox.run([*programs.kvasir, "uninstall", "--yes", "--purge-all"], cwd=programs.cwd)
    trial.report.note(done.text.strip())
    trial.report.check(done.code == 0, "kvasir uninstall --yes --purge-all ends well", f"{done.code} {done.text}")
    check_home(trial.report, sandbox.outside(sandbox.home), before, empty=True)


def archive(trial: Trial, suite: str) -> None:
    """The archive in a folder of an unusual name, read-only, on a system with no more than a desktop's libraries."""
    report = trial.report
    with trial.roots.fresh(suite, "archive", trial.keep) as sandbox:
        trial.roots.apt(sandbox, suite, ["install", "--no-install-recommends", *desktop.libraries()])
        folder = unpacked.unpack(trial.archive, sandbox.outside(unpacked.PLACE))
        size, packed = unpacked.installed_size(folder), trial.archive.stat().st_size
        report.figure("size", f"{packed / 1e6:.0f} MB packed, {size / 1e9:.2f} GB unpacked")
        unpacked.read_only(folder)
        before = listing(sandbox.root)
        home, home_before = home_of(sandbox)
        use(trial, sandbox, from_folder(f"{unpacked.PLACE}/{folder.name}"), f"archive-{suite}")
        check_system(report, sandbox.root, before)
        check_home(report, home, home_before, empty=False)
        folder.rename(sandbox.outside("/home/u/elsewhere"))
        done = sandbox.run(["/home/u/elsewhere/kvasir", "chat", "--prompt", QUESTION])
        report.check(done.code == 0 and bool(done.out.strip()), "moved elsewhere it still answers", done.text)


def paths(trial: Trial) -> None:
    """No file of the packages holds a path of the build machine, also not packed inside of another."""
    words = [str(path).encode() for path in trial.forbidden]
    trial.report.note("looked for: " + ", ".join(str(path) for path in trial.forbidden))
    for package in (trial.deb, trial.archive):
        read, hits = traces(package, words)
        trial.report.figure(package.suffix, f"{read} files")
        trial.report.check(not hits, f"{package.name} holds no path of the build machine", few(hits, 12))


def from_source(trial: Trial) -> None:
    """This checkout in its environment, on this machine: the harness without a package."""
    with tempfile.TemporaryDirectory(prefix="kvasir-smoke-") as folder:
        sandbox, programs = source.checkout(trial.python, ROOT, Path(folder))
        _, before = home_of(sandbox)
        command = [*programs.kvasir, "--version"]
        version = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        command_line(trial.report, sandbox, programs, version)
        server(trial.report, sandbox, programs)
        purge(trial, sandbox, programs, "source", before)


PARTS: dict[str, Callable[[Trial], None]] = {
    "deb-bookworm": partial(deb, suite="bookworm"),
    "deb-trixie": partial(deb, suite="trixie"),
    "archive-bookworm": partial(archive, suite="bookworm"),
    "archive-trixie": partial(archive, suite="trixie"),
    "menu": menu,
    "upgrade": upgrade,
    "uninstall": uninstall,
    "paths": paths,
    "gpu-pack": gpu_pack,
    "source": from_source,
}
BY_DEFAULT = [name for name in PARTS if name != "source"]


def forbidden_paths(dist: Path, python: Path, more: list[Path]) -> tuple[Path, ...]:
    """This checkout, the one that the packages come from, its environment's Python unless that is the system's."""
    base = Path(sys.base_prefix) if not python.exists() else source.base(python)
    found = [ROOT, dist.resolve().parent, *([] if base.is_relative_to("/usr") else [base]), *more]
    return tuple(dict.fromkeys(found))
