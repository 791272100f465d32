"""Global shortcuts: pressed on a real X server, given by a stand-in for the portal, and by Windows's calls."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from ctypes import wintypes
from typing import Any

import pytest
from PySide6.QtCore import QByteArray, QObject

from app.quick import choose
from app.quick.keysyms import keysym_name
from app.quick.shortcut import BIND, Combination, GlobalShortcut
from app.quick.windows import WM_HOTKEY, WindowsShortcut

KEYS = "Ctrl+Alt+K"


def presses(shortcut: GlobalShortcut) -> list[int]:
    """Grows with each press."""
    found: list[int] = []
    shortcut.pressed.connect(lambda: found.append(1))
    return found


@pytest.mark.parametrize(
    ("keys", "modifiers", "key", "name"),
    [
        ("Ctrl+Alt+Space", ("Ctrl", "Alt"), "Space", "space"),
        ("Meta+Shift+K", ("Shift", "Meta"), "K", "k"),
        ("F12", (), "F12", "F12"),
        ("Ctrl+PgUp", ("Ctrl",), "PgUp", "Prior"),
        ("Ctrl+,", ("Ctrl",), ",", "comma"),
    ],
)
def test_keys_are_taken_apart(qapp, keys, modifiers, key, name) -> None:
    assert Combination.of(keys) == (modifiers, key)
    assert keysym_name(key) == name


# --- X11 --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    """An X server without a screen."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-noreset", "-displayfd", str(write)], pass_fds=[write], stderr=subprocess.DEVNULL
    )
    os.close(write)
    with os.fdopen(read) as told:
        number = told.readline().strip()
    yield f":{number}"
    server.terminate()
    server.wait()


@pytest.fixture
def x11(qapp, display, monkeypatch) -> Iterator[Any]:
    from app.quick.x11 import X11Shortcut

    monkeypatch.setenv("DISPLAY", display)
    parent = QObject()
    made: list[X11Shortcut] = []

    def make() -> X11Shortcut:
        made.append(X11Shortcut(parent))
        return made[-1]

    yield make
    for each in made:
        each.close_down()


def strike(*names: str) -> None:
    """Press these keys together as a keyboard does, and let them go."""
    from Xlib import XK, X
    from Xlib.display import Display
    from Xlib.ext import xtest

    display = Display()
    codes = [display.keysym_to_keycode(XK.string_to_keysym(name)) for name in names]
    for code in codes:
        xtest.fake_input(display, X.KeyPress, code)
    for code in reversed(codes):
        xtest.fake_input(display, X.KeyRelease, code)
    display.sync()
    display.close()


def test_x11_tells_of_its_keys_and_of_no_others(qtbot, x11) -> None:
    shortcut = x11()
    found = presses(shortcut)
    shortcut.hold(KEYS)
    assert shortcut.sentence == ""
    strike("Control_L", "k")
    strike("k")
    strike("Control_L", "Alt_L", "k")
    qtbot.waitUntil(lambda: len(found) == 1)
    strike("Num_Lock")  # which is a modifier from now on
    strike("Control_L", "Alt_L", "k")
    qtbot.waitUntil(lambda: len(found) == 2)
    strike("Num_Lock")
    shortcut.hold("F9")
    strike("Control_L", "Alt_L", "k")
    strike("F9")
    qtbot.waitUntil(lambda: len(found) == 3)
    shortcut.hold("")
    strike("F9")
    qtbot.wait(50)
    assert len(found) == 3


def test_x11_says_that_another_program_has_the_keys(qtbot, x11) -> None:
    first, second = x11(), x11()
    first.hold(KEYS)
    second.hold(KEYS)
    assert "Another program has" in second.sentence
    first.hold("")
    second.hold(KEYS)
    assert second.sentence == ""


def test_a_key_that_is_held_down_is_one_press(qtbot, x11) -> None:
    """The server sends a release and a press with one time for each repetition."""
    from Xlib import X

    shortcut = x11()
    found = presses(shortcut)
    for kind, at in ((X.KeyPress, 5), (X.KeyRelease, 500), (X.KeyPress, 500), (X.KeyRelease, 530), (X.KeyPress, 600)):
        shortcut._take(type("Event", (), {"type": kind, "time": at})())
    assert len(found) == 2


@pytest.mark.filterwarnings("ignore:.*unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")  # Xlib
def test_without_a_display_the_way_by_a_command_is_said(qtbot, x11, monkeypatch) -> None:
    monkeypatch.setenv("DISPLAY", ":4711")
    shortcut = x11()
    shortcut.hold(KEYS)
    assert shortcut.sentence.endswith(BIND)
    gc.collect()


# --- the portal -------------------------------------------------------------------------------------------------------


class Portal(threading.Thread):
    """A stand-in for a desktop's portal: gives what ``given`` says, in the order of calls that the interface has."""

    def __init__(self, given: str, refuses: str = "") -> None:
        super().__init__(name="portal", daemon=True)
        from jeepney.bus_messages import message_bus
        from jeepney.io.blocking import open_dbus_connection

        self.given, self.refuses = given, refuses
        self.calls: list[tuple[str, Any]] = []
        self.bus = open_dbus_connection()
        self.bus.send_and_get_reply(message_bus.RequestName("org.freedesktop.portal.Desktop"))
        self.client = self.session = ""

    def run(self) -> None:
        from jeepney import HeaderFields, MessageType, new_error, new_method_return

        try:
            while True:
                message = self.bus.receive()
                if message.header.message_type is not MessageType.method_call:
                    continue
                fields = message.header.fields
                member, self.client = fields[HeaderFields.member], fields[HeaderFields.sender]
                self.calls.append((member, message.body))
                if member in ("Register", self.refuses):
                    error = "portal.Error.NotAllowed" if self.given == "not allowed" else "DBus.Error.UnknownMethod"
                    self.bus.send(new_error(message, f"org.freedesktop.{error}", "s", ("no",)))
                    continue
                options = message.body[-1]
                sender = self.client.removeprefix(":").replace(".", "_")
                request = f"/org/freedesktop/portal/desktop/request/{sender}/{options['handle_token'][1]}"
                self.bus.send(new_method_return(message, "o", (request,)))
                if member == "CreateSession":
                    self.session = f"/org/freedesktop/portal/desktop/session/{sender}/one"
                    answer: tuple[int, dict[str, Any]] = (0, {"session_handle": ("s", self.session)})
                elif self.given == "refused":
                    answer = (1, {})
                else:
                    facts = {"trigger_description": ("s", self.given)}
                    answer = (0, {"shortcuts": ("a(sa{sv})", [("quick-chat", facts)])})
                self.tell(request, "org.freedesktop.portal.Request", "Response", "ua{sv}", answer)
        except (OSError, ValueError):  # the bus is gone
            return

    def tell(self, path: str, interface: str, member: str, signature: str, body: tuple[Any, ...]) -> None:
        from jeepney import DBusAddress, HeaderFields, new_signal

        signal = new_signal(DBusAddress(path, interface=interface), member, signature, body)
        signal.header.fields[HeaderFields.destination] = self.client
        self.bus.send(signal)

    def end(self) -> None:
        if self.is_alive():
            self.bus.sock.shutdown(2)
            self.join()
            self.bus.close()

    def press(self, session: str, token: str = "") -> None:
        facts = {"activation_token": ("s", token)} if token else {}
        body = (session, "quick-chat", 1, facts)
        path, interface = "/org/freedesktop/portal/desktop", "org.freedesktop.portal.GlobalShortcuts"
        self.tell(path, interface, "Activated", "osta{sv}", body)


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """A session bus of its own."""
    if shutil.which("dbus-daemon") is None:
        pytest.skip("dbus-daemon is not installed")
    daemon = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address"], stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdout is not None
    yield daemon.stdout.readline().strip()
    daemon.terminate()
    daemon.wait()
    daemon.stdout.close()


@pytest.fixture
def portal(qapp, bus, monkeypatch) -> Iterator[Any]:
    """``portal(given, refuses)``: (the stand-in, a shortcut that asks it)."""
    from app.quick.portal import PortalShortcut

    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus)
    monkeypatch.setenv("XDG_ACTIVATION_TOKEN", "")
    parent = QObject()
    made: list[tuple[Portal, PortalShortcut]] = []

    def make(given: str = "Control+Alt+K", refuses: str = "") -> tuple[Portal, PortalShortcut]:
        stand_in = Portal(given, refuses)
        stand_in.start()
        made.append((stand_in, PortalShortcut(parent)))
        return made[-1]

    yield make
    for stand_in, shortcut in made:
        shortcut.close_down()
        stand_in.end()


def test_the_portal_gives_the_keys_and_tells_of_them(qtbot, portal) -> None:
    stand_in, shortcut = portal()
    found = presses(shortcut)
    shortcut.hold(KEYS)
    qtbot.waitUntil(lambda: shortcut.sentence.endswith("shortcut: Control+Alt+K."))
    calls = dict(stand_in.calls)
    assert list(calls) == ["Register", "CreateSession", "BindShortcuts"]
    assert calls["BindShortcuts"][1][0][1]["preferred_trigger"] == ("s", "CTRL+ALT+k")
    stand_in.press("/another/session")
    stand_in.press(stand_in.session, "a token")
    qtbot.waitUntil(lambda: found == [1])
    assert os.environ["XDG_ACTIVATION_TOKEN"] == "a token"
    facts = {"trigger_description": ("s", "Meta+J")}
    changed = (stand_in.session, [("quick-chat", facts)])
    path, interface = "/org/freedesktop/portal/desktop", "org.freedesktop.portal.GlobalShortcuts"
    stand_in.tell(path, interface, "ShortcutsChanged", "oa(sa{sv})", changed)
    qtbot.waitUntil(lambda: shortcut.sentence.endswith("shortcut: Meta+J."))
    stand_in.tell(stand_in.session, "org.freedesktop.portal.Session", "Closed", "", ())
    qtbot.waitUntil(lambda: shortcut.sentence.endswith(BIND))
    shortcut.hold("")
    assert shortcut.sentence == ""


def test_a_portal_that_starts_again_is_asked_again(qtbot, portal) -> None:
    first, shortcut = portal()
    shortcut.hold(KEYS)
    qtbot.waitUntil(lambda: shortcut.sentence.endswith("shortcut: Control+Alt+K."))
    first.end()
    second, _ = portal("Control+Alt+Z")
    qtbot.waitUntil(lambda: shortcut.sentence.endswith("shortcut: Control+Alt+Z."))
    found = presses(shortcut)
    second.press(second.session)
    qtbot.waitUntil(lambda: found == [1])


@pytest.mark.parametrize(
    ("given", "refuses", "words"),
    [
        ("", "", "has given Kvasir no keys yet"),
        ("refused", "", "did not give Kvasir the shortcut"),
        ("", "CreateSession", "lets programs set no global shortcut"),
        ("not allowed", "CreateSession", "Run `kvasir desktop install`"),
        ("", "BindShortcuts", "lets programs set no global shortcut"),
    ],
)
def test_a_portal_that_gives_no_keys(qtbot, portal, given, refuses, words) -> None:
    _, shortcut = portal(given, refuses)
    shortcut.hold(KEYS)
    qtbot.waitUntil(lambda: words in shortcut.sentence)


@pytest.mark.parametrize("address", ["", "unix:path=/nowhere/at-all", "what is this", "tcp:host=localhost"])
def test_without_a_portal_the_way_by_a_command_is_said(qtbot, portal, bus, monkeypatch, address) -> None:
    from app.quick.portal import PortalShortcut

    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    parent = QObject()
    shortcut = PortalShortcut(parent)
    shortcut.hold(KEYS)
    assert shortcut.sentence.endswith(BIND)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus)  # a bus without a portal
    shortcut.hold(KEYS)
    qtbot.waitUntil(lambda: shortcut.sentence.endswith(BIND))
    shortcut.close_down()


# --- Windows, and the choice ------------------------------------------------------------------------------------------


class User32:
    """Of the three calls that are made, what Windows's documentation says of them."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, int]] = {}
        self.others: set[tuple[int, int]] = {(0x4002, 0x4A)}

    def RegisterHotKey(self, window: None, number: int, modifiers: int, code: int) -> int:  # noqa: N802
        if (modifiers, code) in self.others:
            return 0
        self.held[number] = modifiers, code
        return 1

    def UnregisterHotKey(self, window: None, number: int) -> int:  # noqa: N802
        return int(self.held.pop(number, None) is not None)

    def VkKeyScanW(self, letter: int) -> int:  # noqa: N802
        return {ord("k"): 0x4B, ord("j"): 0x4A, ord(","): 0xBC}.get(letter, -1)


def test_windows_registers_the_keys_and_tells_of_them(qtbot) -> None:
    user32, parent = User32(), QObject()
    shortcut = WindowsShortcut(user32, parent)
    found = presses(shortcut)
    shortcut.hold(KEYS)
    assert (user32.held, shortcut.sentence) == ({1: (0x4003, 0x4B)}, "")
    for number, parameter in ((WM_HOTKEY, 1), (WM_HOTKEY, 2), (WM_HOTKEY + 1, 1)):
        said = wintypes.MSG(message=number, wParam=parameter)
        for kind in (b"windows_dispatcher_MSG", b"xcb_generic_event_t"):
            shortcut._filter.nativeEventFilter(QByteArray(kind), ctypes.addressof(said))
    assert found == [1]
    shortcut.hold("Ctrl+J")
    assert user32.held == {}
    assert "Another program has" in shortcut.sentence
    shortcut.hold("Ctrl+Ж")
    assert "This keyboard has no" in shortcut.sentence
    shortcut.hold("F5")
    assert user32.held == {1: (0x4000, 0x74)}
    shortcut.close_down()
    assert user32.held == {}


@pytest.mark.parametrize(
    ("platform", "wayland", "kind"),
    [
        ("xcb", "", "X11Shortcut"),
        ("xcb", "wayland-0", "PortalShortcut"),
        ("wayland", "", "PortalShortcut"),
        ("offscreen", "", "GlobalShortcut"),
    ],
)
def test_each_desktop_has_its_kind(qapp, monkeypatch, platform, wayland, kind) -> None:
    monkeypatch.setattr(choose, "QGuiApplication", type("Fake", (), {"platformName": staticmethod(lambda: platform)}))
    monkeypatch.setenv("WAYLAND_DISPLAY", wayland)
    assert type(choose.shortcut_here(QObject())).__name__ == kind
