"""Ask a window to close itself, as a close button does: ``/usr/bin/python3 ask_to_close.py WINDOW``, with DISPLAY set.

One file: it is started by Debian's own Python, for which there is python3-xlib. xdotool cannot do it before 3.20210804,
and other tools ask the window manager, which there is none of.
"""

from __future__ import annotations

import sys

from Xlib.display import Display
from Xlib.protocol.event import ClientMessage


def ask_to_close(number: int) -> None:
    """Send WM_DELETE_WINDOW (ICCCM 4.2.8.1)."""
    display = Display()
    window = display.create_resource_object("window", number)
    data = (32, [display.intern_atom("WM_DELETE_WINDOW"), 0, 0, 0, 0])
    window.send_event(ClientMessage(window=window, client_type=display.intern_atom("WM_PROTOCOLS"), data=data))
    display.sync()


if __name__ == "__main__":
    ask_to_close(int(sys.argv[1]))
