"""Names of keys in X11 and in xkbcommon (X11/keysymdef.h), which the portal of Linux desktops uses as well."""

from __future__ import annotations

_NAMES = {
    "Space": "space",
    "Esc": "Escape",
    "Backspace": "BackSpace",
    "Enter": "KP_Enter",
    "Ins": "Insert",
    "Del": "Delete",
    "PgUp": "Prior",
    "PgDown": "Next",
    "Pause": "Pause",
    "CapsLock": "Caps_Lock",
    "!": "exclam",
    '"': "quotedbl",
    "#": "numbersign",
    "$": "dollar",
    "%": "percent",
    "&": "ampersand",
    "'": "apostrophe",
    "(": "parenleft",
    ")": "parenright",
    "*": "asterisk",
    "+": "plus",
    ",": "comma",
    "-": "minus",
    ".": "period",
    "/": "slash",
    ":": "colon",
    ";": "semicolon",
    "<": "less",
    "=": "equal",
    ">": "greater",
    "?": "question",
    "@": "at",
    "[": "bracketleft",
    "\\": "backslash",
    "]": "bracketright",
    "^": "asciicircum",
    "_": "underscore",
    "`": "grave",
    "{": "braceleft",
    "|": "bar",
    "}": "braceright",
    "~": "asciitilde",
    "Ä": "adiaeresis",
    "Ö": "odiaeresis",
    "Ü": "udiaeresis",
}


def keysym_name(key: str) -> str:
    """The keysym's name of a key that Qt writes ``key``: "Space" is "space", "K" is "k", "F5" stays itself."""
    return _NAMES.get(key) or (key.lower() if len(key) == 1 else key)
