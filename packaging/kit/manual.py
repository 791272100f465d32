"""The manual page kvasir(1): prose from linux/kvasir.1.in, commands and options from the command line itself.

Asking the command line keeps the page true: a new command or option is in it without anybody writing it down.
"""

from __future__ import annotations

import sys
from typing import Any

from kit.layout import LINUX, ROOT

TEMPLATE = LINUX / "kvasir.1.in"


def text() -> str:
    """The page in man's macros."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    import typer.main

    from engine.doors.cli.main import app

    heading = '.TH KVASIR 1 "" "Kvasir" "User Commands"\n'
    commands = "\n".join(_described(typer.main.get_command(app), "kvasir"))
    return heading + TEMPLATE.read_text(encoding="utf-8").replace("@COMMANDS@", commands)


def commands() -> list[str]:
    """Every command a user can call, such as "kvasir models check", without the hidden ones."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    import typer.main

    from engine.doors.cli.main import app

    return [path for path, _ in _walk(typer.main.get_command(app), "kvasir")]


def _walk(command: Any, path: str) -> list[tuple[str, Any]]:
    """(path, command) of all commands below, in the order of --help; click's classes have no common stub to name."""
    found = []
    for name, inner in getattr(command, "commands", {}).items():
        if inner.hidden:
            continue
        if getattr(inner, "commands", None):
            found += _walk(inner, f"{path} {name}")
        else:
            found.append((f"{path} {name}", inner))
    return found


def _described(root: Any, name: str) -> list[str]:
    lines = []
    for option in root.params:
        lines += _option(option, [name])
    for path, command in _walk(root, name):
        operands = [
            f"\\fI{_escaped(parameter.name.upper())}\\fR"
            for parameter in command.params
            if parameter.param_type_name == "argument"
        ]
        heading = " ".join([f"\\fB{_escaped(path)}\\fR", *operands])
        lines += [f".SS {heading}", *_prose(command.help or "")]
        for option in command.params:
            lines += _option(option, path.split())
    return lines


def _option(parameter: Any, path: list[str]) -> list[str]:
    """A tagged paragraph: the names and the value that it takes, then its help."""
    if parameter.param_type_name == "argument" or parameter.hidden:
        return []
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in [*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" \\fI{_escaped(_metavar(parameter))}\\fR"
    return [".TP", names + value, *_prose(parameter.help or "")]


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.strip("_").upper().replace("_", "-"))


def _prose(text: str) -> list[str]:
    """Lines of text that no macro and no escape is read into."""
    return [
        "\\&" + _escaped(line) if line[:1] in (".", "'") else _escaped(line)
        for line in text.split("\n")
        if line.strip()
    ]


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha").replace("`", "\\(ga")
    )
