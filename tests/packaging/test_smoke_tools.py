"""What the trial of a package reads and compares; the trial itself needs root and a package (make test-package)."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from smoke import debian, desktop, dialogue, leftovers, listing, programs, roots, startup, terminal, traces
from smoke.report import Report

ROOT = Path(__file__).parents[2]


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


# --- listings --------------------------------------------------------------------------------------------------------


def test_a_listing_finds_what_came_what_went_and_what_changed(tmp_path: Path) -> None:
    root = tree(tmp_path, {"etc/keep": "1", "etc/edit": "1", "etc/lose": "1"})
    (root / "etc/link").symlink_to("keep")
    before = listing.listing(root)
    (root / "etc/lose").unlink()
    (root / "etc/edit").write_text("two")
    (root / "etc/link").unlink()
    (root / "etc/link").symlink_to("edit")
    tree(root, {"usr/lib/kvasir/new": ""})
    difference = listing.compare(before, listing.listing(root))
    assert difference.added == ["/usr", "/usr/lib", "/usr/lib/kvasir", "/usr/lib/kvasir/new"]
    assert difference.removed == ["/etc/lose"]
    assert difference.changed == ["/etc/edit", "/etc/link"]


def test_a_file_made_in_a_folder_does_not_change_the_folder(tmp_path: Path) -> None:
    root = tree(tmp_path, {"etc/one": ""})
    before = listing.listing(root)
    os.utime(root / "etc", (1, 1))
    assert listing.compare(before, listing.listing(root)) == listing.Difference([], [], [])


@pytest.mark.parametrize(
    "path", ["/var/lib/dpkg/status", "/var/log/apt/history.log", "/usr/share/applications/mimeinfo.cache", "/home/u/x"]
)
def test_what_the_system_writes_down_is_explained(path: str) -> None:
    assert listing.unexplained([path]) == []


@pytest.mark.parametrize(
    "path",
    ["/usr/lib/kvasir/x", "/usr/share/applications/kvasir.desktop", "/etc/kvasir.conf", "/var/lib/kvasir", "/tmp/k"],
)
def test_anything_else_is_not(path: str) -> None:
    assert listing.unexplained([path]) == [path]


def test_a_cache_that_names_a_program_is_found(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"a/mimeinfo.cache": "application/x-gguf=Kvasir.desktop;", "b/other.cache": "x", "c/kvasir": ""}
    )
    paths = ["/a/mimeinfo.cache", "/b/other.cache", "/c/kvasir", "/b"]
    assert listing.naming(root, paths, b"kvasir") == ["/a/mimeinfo.cache", "/c/kvasir"]


def home(root: Path, *names: str) -> Path:
    return tree(root, {f"home/u/{name}": "x" for name in names})


def leftovers_of(root: Path, before: listing.Listing, empty: bool) -> list[str]:
    report = Report()
    with report.part("home"):
        leftovers.check_home(report, root / "home/u", before, empty)
    return report.parts[0].failures


def test_a_home_with_chats_passes_and_one_with_strange_files_does_not(tmp_path: Path) -> None:
    root = home(tmp_path, ".bashrc")
    before = listing.listing(root / "home/u")
    home(root, ".local/share/kvasir/history.db", ".config/kvasir/settings.json", ".cache/fontconfig/x")
    assert leftovers_of(root, before, empty=False) == []
    home(root, ".kvasirrc")
    assert ".kvasirrc" in leftovers_of(root, before, empty=False)[0]


def test_an_empty_home_has_no_folder_of_ours(tmp_path: Path) -> None:
    root = home(tmp_path, ".bashrc")
    before = listing.listing(root / "home/u")
    (root / "home/u/.cache/fontconfig").mkdir(parents=True)
    assert leftovers_of(root, before, empty=True) == []
    (root / "home/u/.cache/kvasir").mkdir()
    assert leftovers_of(root, before, empty=True) == ["the home is as it was; seen: /.cache/kvasir"]


def test_a_lost_file_of_the_home_fails(tmp_path: Path) -> None:
    root = home(tmp_path, ".bashrc", ".local/share/kvasir/history.db")
    before = listing.listing(root / "home/u")
    (root / "home/u/.bashrc").unlink()
    assert any(".bashrc" in failure for failure in leftovers_of(root, before, empty=False))


def test_a_shipped_file_that_stays_fails(tmp_path: Path) -> None:
    root = tree(tmp_path, {"usr/bin/sh": ""})
    before = listing.listing(root)
    tree(root, {"usr/lib/kvasir/left": ""})
    report = Report()
    with report.part("system"):
        leftovers.check_gone(report, root, before, {"/usr", "/usr/bin/sh", "/usr/lib/kvasir", "/usr/lib/kvasir/left"})
        leftovers.check_system(report, root, before)
    gone, strange = report.parts[0].failures
    assert gone.endswith("seen: /usr/lib/kvasir\n/usr/lib/kvasir/left")
    assert strange.startswith("nothing new is on the system; seen: /usr/lib")


# --- what tools print and files say ----------------------------------------------------------------------------------


def test_apts_simulation_names_each_package_once() -> None:
    text = "Inst libx11-6 (2:1.8.4 Debian:12 [amd64])\nInst kvasir (0.1.0 local-deb [amd64])\nConf libx11-6 (2:1.8.4)\n"
    assert debian.to_be_installed(text) == ["kvasir", "libx11-6"]


def test_only_whole_installations_count(tmp_path: Path) -> None:
    whole = "Package: a\nStatus: install ok installed\nVersion: 1\n"
    rest = "Package: b\nStatus: deinstall ok config-files\nVersion: 2\n"
    assert debian.installed(tree(tmp_path, {"var/lib/dpkg/status": f"{whole}\n{rest}"})) == {"a": "1"}


def test_the_exec_line_of_the_entry_and_not_of_an_action(tmp_path: Path) -> None:
    text = (
        '[Desktop Action new]\nExec=other\n[Desktop Entry]\nName=Kvasir\nExec="/opt/My Kvasir/kvasir" --scale 50%% %F\n'
    )
    assert programs.exec_line(tree(tmp_path, {"k.desktop": text}) / "k.desktop") == (
        "/opt/My Kvasir/kvasir",
        "--scale",
        "50%",
    )


def test_an_entry_without_an_exec_line_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no Exec line"):
        programs.exec_line(tree(tmp_path, {"k.desktop": "[Desktop Entry]\nName=Kvasir\n"}) / "k.desktop")


def test_the_type_of_gguf_files(tmp_path: Path) -> None:
    entry = '<mime-type type="{}"><glob pattern="{}"/></mime-type>'
    text = entry.format("text/x", "*.x") + entry.format("a/b", "*.gguf")
    assert desktop.gguf_type(tree(tmp_path, {"kvasir.xml": text})) == "a/b"
    assert desktop.gguf_type(tmp_path / "nothing") == ""


def test_the_trial_of_packages_needs_no_more_than_python() -> None:
    """It runs on the system's Python, in which nothing of Kvasir's or its libraries is installed."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import smoke.run; from smoke import desktop; "
        "print(*desktop.libraries())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, ROOT / "packaging"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"libxcb-cursor0", "libegl1", "fonts-dejavu-core"} <= set(done.stdout.split())


def test_the_age_of_an_archive_is_in_its_name() -> None:
    assert roots.age_days(Path("/x/bookworm-20200101.tar")) > 365


def test_a_chat_is_read_while_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    assert dialogue.read_history(file) == []
    writer = sqlite3.connect(file)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE messages (number INTEGER PRIMARY KEY, role, content, state, stats, created)")
    writer.execute("INSERT INTO messages VALUES (1, 'user', 'why?', 'complete', '{}', 1.0)")
    writer.commit()
    assert [message.content for message in dialogue.read_history(file)] == ["why?"]
    writer.close()


def test_the_first_word_is_when_the_engine_says_it_was() -> None:
    answer = dialogue.Message("assistant", "x", "complete", '{"timings": {"ttft_ms": 500.0}}', 0.0)
    assert dialogue.Answered(answer, asked=10.0, finished=12.0).first_word == 10.5
    assert dialogue.Answered(answer._replace(stats="{}"), asked=10.0, finished=12.0).first_word == 12.0


@pytest.mark.parametrize(
    ("line", "bad"),
    [
        ("2026-11-22 00:37:27,483 INFO app.program: window visible after 1.80 s", False),
        ("2026-11-22 00:37:27,483 WARNING qt: something", True),
        ("2026-11-22 00:37:27,483 INFO engine: WARNING engine.x: something", True),
        ("2026-11-22 00:37:27,483 INFO engine: Traceback (most recent call last):", True),
    ],
)
def test_trouble_in_a_log(line: str, bad: bool) -> None:
    assert bool(dialogue.TROUBLE.search(line)) is bad


def test_an_answer_about_the_cache_makes_sense_and_small_talk_does_not() -> None:
    assert terminal.sensible("It keeps the keys and values of earlier tokens.")
    assert not terminal.sensible("Hello! How can I help you today?")


# --- paths of the build machine --------------------------------------------------------------------------------------

SECRET = b"/build/machine"


def test_zlib_streams_are_found_between_other_bytes() -> None:
    inner = [b"first " + SECRET, os.urandom(200_000)]
    data = b"\x7fELF\x78\x9cnoise" + zlib.compress(inner[0]) + b"between" + zlib.compress(inner[1], 9) + b"end"
    assert [text for _, text in traces.streams("program", data)] == inner


def test_zip_archives_and_programs_are_looked_into() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.pyc", SECRET)
    assert dict(traces.packed_inside("base.zip", buffer.getvalue())) == {"base.zip!a.pyc": SECRET}
    program = b"\x7fELF" + zlib.compress(SECRET) + b"MEI\014\013\012\013\016"
    assert [text for _, text in traces.packed_inside("kvasir", program)] == [SECRET]
    assert list(traces.packed_inside("libx.so", program[:-8])) == []


@pytest.mark.parametrize("text", [b"clean", SECRET])
def test_a_path_in_an_archive_is_reported_with_its_file(tmp_path: Path, text: bytes) -> None:
    plain = tmp_path / "k.tar"
    with tarfile.open(plain, "w") as archive:
        member = tarfile.TarInfo("kvasir/module.py")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    package = tmp_path / "k.tar.zst"
    if os.system(f"zstd -q {plain} -o {package}"):
        pytest.skip("zstd is not installed")
    read, hits = traces.traces(package, [SECRET, b"/never/there"])
    assert read == 1
    assert [hit.split(":")[0] for hit in hits] == (["kvasir/module.py"] if text == SECRET else [])


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_part_that_fails_or_breaks_fails_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    with report.part("good"):
        assert report.check(True, "holds")
    assert report.finish() == 0
    with report.part("bad"):
        assert not report.check(False, "should hold", "something else")
        raise TimeoutError("no window")
    assert report.finish() == 1
    shown = capsys.readouterr().out
    assert "FAIL bad: should hold; seen: something else" in shown
    assert "TimeoutError at test_smoke_tools.py" in shown


def test_figures_are_medians_side_by_side() -> None:
    starts = {"package": [startup.Start(1, 2, 3), startup.Start(3, 4, 9), startup.Start(2, 3, 4)]}
    row = startup.table(starts).splitlines()[1]
    assert " ".join(row.split()) == "package 2.00 (1.00 to 3.00) 3.00 (2.00 to 4.00) 4.00 (3.00 to 9.00)"
