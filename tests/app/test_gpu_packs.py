"""The command that looks after GPU packs, run beside the window: what it says, and how it can end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QProcess

from app import command as command_module
from app.gpu import words
from app.gpu.pace import DownloadPace
from app.gpu.packs import Packs
from app.gpu.words import Situation
from engine.protocol import PackProgress, PackStatus

FAKE = Path(__file__).with_name("fake_gpu.py")
PATIENCE_MS = 20_000


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"total": 100, "done": 0, "gpu": "Fake GPU", "kind": "cuda13", "disk_bytes": 200}))
    return path


def change(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


@pytest.fixture
def make_packs(qtbot, state) -> Iterator[Callable[..., Packs]]:
    made: list[Packs] = []

    def make(*command: str) -> Packs:
        packs = Packs(command or [sys.executable, str(FAKE), str(state)])
        made.append(packs)
        return packs

    yield make
    for packs in made:
        packs.close_down()


@pytest.fixture
def packs(make_packs) -> Packs:
    return make_packs()


def check(qtbot, packs: Packs) -> None:
    with qtbot.waitSignal(packs.checked, timeout=PATIENCE_MS):
        packs.check()


def wait_half(qtbot, packs: Packs) -> None:
    qtbot.waitUntil(lambda: packs.progress is not None and packs.progress.done >= 50, timeout=PATIENCE_MS)


def test_the_status(qtbot, packs):
    check(qtbot, packs)
    assert packs.status == PackStatus(gpu="Fake GPU", kind="cuda13", disk_bytes=200, download_bytes=100)
    assert packs.trouble == ""


def test_an_install_reports_its_stages_and_leaves_a_fresh_status(qtbot, packs):
    stages = []
    packs.changed.connect(lambda: stages.append(packs.progress.stage if packs.progress else ""))
    with qtbot.waitSignal(packs.checked, timeout=PATIENCE_MS), qtbot.waitSignal(packs.ended) as ended:
        packs.install()
    action, result = ended.args
    assert (action, result.ok, result.sentence) == (
        "install",
        True,
        "The GPU pack is installed and works on Fake GPU.",
    )
    assert [stage for stage in dict.fromkeys(stages) if stage] == ["checking", "downloading", "installing", "testing"]
    assert packs.status.state == "installed"
    assert (packs.action, packs.failed, packs.paused) == ("", "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_paused_it_goes_on_where_it_was(qtbot, packs, state):
    change(state, script="slow")
    packs.install()
    wait_half(qtbot, packs)
    with qtbot.assertNotEmitted(packs.ended), qtbot.waitSignal(packs.checked, timeout=PATIENCE_MS):
        packs.pause()
    assert (packs.paused, packs.action, packs.failed) == ("install", "", "")
    assert (packs.status.state, packs.status.download_bytes) == ("partial", 50)
    done = []
    packs.changed.connect(lambda: done.append(packs.progress.done if packs.progress else 0))
    with qtbot.waitSignal(packs.ended, timeout=PATIENCE_MS):
        packs.again()
    assert min(count for count in done if count > 2) > 50
    assert packs.paused == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_one_that_does_not_listen_is_killed(qtbot, packs, state, monkeypatch):
    monkeypatch.setattr(command_module, "KILL_MS", 200)
    change(state, script="deaf")
    packs.install()
    wait_half(qtbot, packs)
    with qtbot.waitSignal(packs.checked, timeout=PATIENCE_MS):
        packs.pause()
    assert packs.paused == "install"


def test_a_failure_is_its_own_sentence_and_can_be_tried_again(qtbot, packs, state):
    change(state, script="fail")
    with qtbot.waitSignal(packs.ended, timeout=PATIENCE_MS) as ended:
        packs.install("/media/stick/pack.tar")
    assert not ended.args[1].ok
    assert packs.failure == "The connection was cut. Connect to the network, then try again."
    qtbot.waitUntil(lambda: packs.status is not None, timeout=PATIENCE_MS)
    with qtbot.waitSignal(packs.ended, timeout=PATIENCE_MS) as ended:
        packs.again()
    assert ended.args[1].ok
    asked = json.loads(state.read_text())["asked"]
    assert asked == [["install", "--from", "/media/stick/pack.tar", "--json"]] * 2
    assert packs.failure == ""


def test_a_death_without_a_word_is_told_with_the_last_line(qtbot, packs, state):
    change(state, script="die")
    with qtbot.waitSignal(packs.ended, timeout=PATIENCE_MS):
        packs.install()
    assert packs.failure == "The GPU pack's command stopped (exit code 9): Killed by the script."


def test_a_command_that_is_not_there(qtbot, make_packs):
    packs = make_packs("/no/such/kvasir-engine", "gpu")
    check(qtbot, packs)
    assert packs.status is None
    assert packs.trouble.startswith("The GPU pack's command could not be started")


def test_a_command_that_knows_nothing_of_packs(qtbot, make_packs):
    packs = make_packs(sys.executable, "-c", "import sys; sys.exit('No such command gpu.')")
    check(qtbot, packs)
    assert "No such command gpu" in packs.trouble


def test_a_failure_that_the_command_line_knows_is_its_sentence(qtbot, make_packs):
    sentence = "The folder /data cannot be read. Allow reading it."
    packs = make_packs(sys.executable, "-c", f"import sys; sys.exit('kvasir: {sentence}')")
    check(qtbot, packs)
    assert packs.trouble == sentence


def test_without_a_command_nothing_happens(qtbot):
    packs = Packs([])
    with qtbot.assertNotEmitted(packs.changed):
        packs.check()
        packs.install()
    assert packs.action == ""


def test_a_second_action_waits_for_nobody(qtbot, packs, state):
    change(state, script="slow")
    packs.install()
    wait_half(qtbot, packs)
    packs.remove()
    assert packs.action == "install"
    packs.close_down()
    assert [asked[0] for asked in json.loads(state.read_text())["asked"]] == ["install"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_action_does_not_wait_for_a_status_that_hangs(qtbot, packs, state, monkeypatch):
    monkeypatch.setattr(command_module, "KILL_MS", 200)
    change(state, script="hang")
    packs.check()
    hung = packs._running
    qtbot.waitUntil(lambda: json.loads(state.read_text())["script"] == "", timeout=PATIENCE_MS)
    ends = []
    hung.ended.connect(ends.append)
    with qtbot.waitSignal(hung.destroyed, timeout=PATIENCE_MS), qtbot.waitSignal(packs.ended, timeout=PATIENCE_MS):
        packs.install()
        assert packs.action == "install"
        assert hung._process.state() is QProcess.ProcessState.Running
    assert ends == []


def test_nothing_is_started_once_the_program_ends(qtbot, packs, state):
    packs.close_down()
    packs.check()
    packs.install("/media/stick/pack.tar")
    assert packs.action == ""
    assert "asked" not in json.loads(state.read_text())


def test_old_packs_are_removed_by_their_own_command(qtbot, packs, state):
    change(state, others=["/data/gpu/old"], state="installed", done=100)
    check(qtbot, packs)
    with qtbot.waitSignal(packs.checked, timeout=PATIENCE_MS):
        packs.remove_old()
    assert (packs.status.others, packs.status.state) == ([], "installed")


def test_pace():
    pace = DownloadPace()
    pace.add(0, 100.0)
    assert pace.rate is None
    pace.add(50, 100.5)
    assert pace.rate is None
    for second in range(1, 21):
        pace.add(100 * second if second <= 10 else 1000 + 10 * (second - 10), 100.0 + second)
    assert pace.rate == pytest.approx(10)
    assert pace.left(1200) == pytest.approx(10)
    assert pace.left(0) is None
    pace.add(5, 130.0)
    assert pace.rate is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (7, "7 s"), (33, "35 s"), (54, "55 s"), (70, "1 min"), (3540, "59 min"), (4230, "1 h 10 min")],
)
def test_time_left(seconds, text):
    assert words.duration(seconds) == text


GPU = PackStatus(gpu="Fake GPU", driver="580", kind="cuda13", download_bytes=24 * 10**8, disk_bytes=58 * 10**8)


def test_nothing_is_shown_where_there_is_no_gpu_and_settings_say_why():
    none = Situation(status=PackStatus(refused="No NVIDIA or AMD GPU was found."))
    assert words.card(none) is None
    assert words.section(none).caption == "No NVIDIA or AMD GPU was found."
    assert words.section(none).buttons == ()
    old = Situation(status=PackStatus(gpu="Old GPU", refused="Its driver 390 is too old. Install 525 or newer."))
    assert words.card(old) is None
    assert words.section(old).caption == "Its driver 390 is too old. Install 525 or newer."
    assert words.card(Situation(status=GPU, cpu=False)) is None


def test_what_is_not_known_is_said():
    assert words.section(Situation()).title == "Looking for a GPU"
    unknown = words.section(Situation(trouble="The folder /data cannot be read."))
    assert (unknown.caption, unknown.buttons[0].key) == ("The folder /data cannot be read.", "check")


def test_too_little_room_is_said_before_anything_is_fetched():
    import msgspec

    status = msgspec.structs.replace(GPU, free_bytes=3 * 10**9)
    offer = words.card(Situation(status=status))
    assert "5.8 GB, and 3.0 GB are free" in offer.caption
    assert [button.key for button in offer.buttons] == ["details", "dismiss", "check"]
    install = words.section(Situation(status=status)).buttons[0]
    assert (install.key, bool(install.why_not)) == ("install", True)
    beside = msgspec.structs.replace(
        GPU, free_bytes=7 * 10**9, needed_bytes=85 * 10**8
    )  # what is fetched lies there too
    assert "8.5 GB, and 7.0 GB are free" in words.card(Situation(status=beside)).caption


def test_a_pack_of_an_earlier_version_is_used_until_the_new_one_is_there():
    import msgspec

    status = msgspec.structs.replace(GPU, free_bytes=10**11, former="/data/gpu/0123456789abcdef")
    said = words.section(Situation(status=status, cpu=False))
    assert (said.title, [button.key for button in said.buttons]) == (
        "There is a newer one",
        ["install", "file", "remove"],
    )
    assert said.caption.startswith("A pack of an earlier version is in use.")
    assert words.card(Situation(status=status, cpu=False)) is None


def test_a_gpu_that_has_gone_is_the_reason_why_its_pack_is_not_used():
    status = PackStatus(kind="cuda13", state="installed", active=True, refused="No GPU was found.")
    assert words.card(Situation(status=status)).caption == "No GPU was found."
    assert words.section(Situation(status=status)).caption == "No GPU was found."


def test_progress_says_bytes_rate_and_time():
    progress = PackProgress(stage="downloading", done=12 * 10**8, total=24 * 10**8)
    content = words.card(Situation(status=GPU, action="install", progress=progress, rate=24e6, left=50.0))
    assert content.title == "Making Kvasir fast: downloading (2 of 4)"
    assert content.caption == "1.2 GB of 2.4 GB · 24 MB/s · 50 s left"
    assert content.fraction == pytest.approx(0.5)
    testing = PackProgress(stage="testing", sentence="One product on the GPU.")
    assert words.card(Situation(action="repair", progress=testing)).caption == "One product on the GPU."


def test_a_pack_that_is_not_used_says_why():
    status = PackStatus(gpu="Fake GPU", kind="cuda13", state="installed", reason="KVASIR_GPU_PACK is off.")
    said = words.card(Situation(status=status))
    assert (said.title, said.caption) == ("The GPU pack is not in use", "KVASIR_GPU_PACK is off.")
    assert words.card(Situation(status=status, notice="Its engine failed.")).caption == "Its engine failed."
    assert words.section(Situation(status=status)).title == "Installed, not in use"
    broken = PackStatus(gpu="Fake GPU", kind="cuda13", state="broken", reason="Its self-test failed.")
    assert words.section(Situation(status=broken)).tone == "bad"
    assert words.card(Situation(status=broken)).title == "The GPU pack does not work"
