"""Global shortcuts by the desktop's portal, the only way on Wayland: org.freedesktop.portal.GlobalShortcuts.

The desktop has the last word: it may ask the person, and give other keys than those that are wanted.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from jeepney import DBusAddress, HeaderFields, MatchRule, Message, MessageType, message_bus, new_method_call
from jeepney.auth import AuthenticationError
from jeepney.io.blocking import DBusConnection, open_dbus_connection
from PySide6.QtCore import QObject

from app.language import tr
from app.quick.keysyms import keysym_name
from app.quick.shortcut import BIND, Combination, GlobalShortcut
from app.single import ACTIVATION

log = logging.getLogger(__name__)

SERVICE, PATH = "org.freedesktop.portal.Desktop", "/org/freedesktop/portal/desktop"
SHORTCUTS, REQUEST = "org.freedesktop.portal.GlobalShortcuts", "org.freedesktop.portal.Request"
SESSION, REGISTRY = "org.freedesktop.portal.Session", "org.freedesktop.host.portal.Registry"
APPLICATION = "kvasir"
"""The name of the program's entry in the menu, without ".desktop"."""
ID = "quick-chat"
BUS = "org.freedesktop.DBus"
_SIGNALS = (
    (REQUEST, "Response"),
    (SHORTCUTS, "Activated"),
    (SHORTCUTS, "ShortcutsChanged"),
    (SESSION, "Closed"),
)
_NOT_ALLOWED = "org.freedesktop.portal.Error.NotAllowed"
"""Error of a portal that does not know which program asks."""
_MODIFIERS = {"Ctrl": "CTRL", "Alt": "ALT", "Shift": "SHIFT", "Meta": "LOGO"}

_Take = Callable[[tuple[Any, ...]], object]
_Refused = Callable[[str, str], object]


def trigger(keys: str) -> str:
    """Keys as the portal takes them (the "shortcuts" specification of freedesktop.org): CTRL+ALT+space."""
    wanted = Combination.of(keys)
    return "+".join([*(_MODIFIERS[each] for each in wanted.modifiers), keysym_name(wanted.key)])


class PortalShortcut(GlobalShortcut):
    """Waits for no answer of the desktop's: each comes when it comes."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._bus: DBusConnection | None = None
        self._serials = count(1000)
        self._replies: dict[int, Callable[[Message], object]] = {}
        """What takes the answer to the call of that serial."""
        self._requests: dict[str, Callable[[int, dict[str, Any]], object]] = {}
        """What takes the answer of the person, or of the desktop, to the request at that path."""
        self._session = ""
        self._keys = ""
        self._ended = False
        """True after the portal ended, until it is there again."""

    def hold(self, keys: str) -> None:
        self.close_down()  # a session can bind its keys once
        self._keys = keys
        self._ended = False
        self._say("")
        if not keys:
            return
        try:
            self._bus = open_dbus_connection()
            self._ask()
        # Of addresses that it does not know the library says so with what Python has at hand.
        except (OSError, KeyError, ValueError, RuntimeError, AuthenticationError) as error:
            self._refuse(f"no session bus: {error}")  # not shown

    def _ask(self) -> None:
        """Ask for a session, whose shortcut is bound when it is there."""
        assert self._bus is not None
        self._listen(self._bus.sock.fileno(), self._read)
        rules = [MatchRule(type="signal", sender=SERVICE, interface=of, member=name) for of, name in _SIGNALS]
        owner = MatchRule(type="signal", sender=BUS, interface=BUS, member="NameOwnerChanged")
        owner.add_arg_condition(0, SERVICE)
        for rule in (*rules, owner):
            self._send(message_bus.AddMatch(rule), lambda _: None)
        # Older portals know no registry and take the name from the menu's entry that started the program.
        register = new_method_call(DBusAddress(PATH, SERVICE, REGISTRY), "Register", "sa{sv}", (APPLICATION, {}))
        self._send(register, lambda _: None)
        token = _token()
        self._request(
            "CreateSession", "a{sv}", token, lambda options: (options,), self._on_session, session_handle_token=token
        )

    def close_down(self) -> None:
        self._stop_listening()
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close()  # its sessions end with it
        self._replies.clear()
        self._requests.clear()
        self._session = ""

    def _on_session(self, code: int, results: dict[str, Any]) -> None:
        if code:
            self._refuse("the desktop refused a session")  # not shown
            return
        self._session = results["session_handle"][1]
        wanted = {"description": ("s", tr("Quick chat")), "preferred_trigger": ("s", trigger(self._keys))}
        self._request(
            "BindShortcuts",
            "oa(sa{sv})sa{sv}",
            _token(),
            lambda options: (self._session, [(ID, wanted)], "", options),
            self._on_bound,
        )

    def _on_bound(self, code: int, results: dict[str, Any]) -> None:
        if code:
            words = tr("The desktop did not give Kvasir the shortcut.")
            self._say(f"{words} {BIND}")
            return
        self._tell(results.get("shortcuts", ("", ()))[1])

    def _tell(self, shortcuts: Iterable[tuple[str, dict[str, Any]]]) -> None:
        bound = dict(shortcuts)
        given = bound.get(ID, {}).get("trigger_description", ("s", ""))[1]
        if given:
            self._say(tr("The desktop has given Kvasir this shortcut: {keys}.", keys=given))
        else:
            self._say(tr("The desktop has given Kvasir no keys yet: choose them in the desktop's settings."))

    def _request(
        self,
        method: str,
        signature: str,
        token: str,
        arguments: Callable[[dict[str, Any]], tuple[Any, ...]],
        take: Callable[[int, dict[str, Any]], object],
        **options: str,
    ) -> None:
        """Call a method that answers by a signal of a request, whose path is known before it is made."""
        assert self._bus is not None
        sender = str(self._bus.unique_name).removeprefix(":").replace(".", "_")
        self._requests[f"{PATH}/request/{sender}/{token}"] = take
        given = {name: ("s", value) for name, value in {"handle_token": token, **options}.items()}
        call = new_method_call(DBusAddress(PATH, SERVICE, SHORTCUTS), method, signature, arguments(given))
        self._send(call, lambda _: None, self._on_error)

    def _on_error(self, name: str, why: str) -> None:
        self._refuse(f"{name}: {why}")
        if name == _NOT_ALLOWED:
            self._say(
                tr(
                    "The desktop gives a global shortcut to programs of its menu alone. "
                    "Run `kvasir desktop install`, then start Kvasir again."
                )
            )

    def _send(self, message: Message, take: _Take, refused: _Refused = lambda *_: None) -> None:
        """Call a method; ``refused`` gets the name and the text of the error that comes in place of its answer."""
        assert self._bus is not None
        serial = next(self._serials)

        def settle(reply: Message) -> None:
            if reply.header.message_type is MessageType.error:
                refused(reply.header.fields.get(HeaderFields.error_name, ""), str(reply.body))
            else:
                take(reply.body)

        self._replies[serial] = settle
        self._bus.send(message, serial=serial)

    def _read(self) -> None:
        assert self._bus is not None
        bus: DBusConnection = self._bus
        try:
            while self._bus is bus:  # what a message does may end it
                self._take(bus.receive(timeout=0))
        except TimeoutError:  # that was all
            return
        except (OSError, ValueError) as error:
            self._refuse(f"the session bus is gone: {error}")  # not shown

    def _take(self, message: Message) -> None:
        fields, body = message.header.fields, message.body
        member, path = fields.get(HeaderFields.member), fields.get(HeaderFields.path, "")
        if message.header.message_type is not MessageType.signal:
            settle = self._replies.pop(fields.get(HeaderFields.reply_serial, 0), None)
            if settle is not None:
                settle(message)
        elif member == "Response" and path in self._requests:
            self._requests.pop(path)(*body)
        elif member == "Activated" and body[:2] == (self._session, ID):
            token = body[3].get("activation_token", ("s", ""))[1]
            if token:  # with which the desktop lets the window come to the front; Qt reads it there
                os.environ[ACTIVATION] = token
            self.pressed.emit()
        elif member == "ShortcutsChanged" and body[0] == self._session:
            self._tell(body[1])
        elif member == "NameOwnerChanged" and body[1]:  # it ended, or another is in its place: its sessions are gone
            self._session = ""
            if not body[2]:
                self._ended = True
            else:
                self.hold(self._keys)
        elif member == "NameOwnerChanged" and self._ended:
            self.hold(self._keys)
        elif member == "Closed" and path == self._session:
            self._refuse("the desktop ended the session")  # not shown

    def _refuse(self, why: str) -> None:
        log.warning("no keys of the desktop: %s", why)
        self.close_down()
        self._say(f"{tr('This desktop lets programs set no global shortcut.')} {BIND}")


def _token() -> str:
    return f"kvasir_{secrets.token_hex(8)}"
