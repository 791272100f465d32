"""Start the window: ``python -m app``."""

from __future__ import annotations

import os
import sys
import time

_STARTED = time.perf_counter()


def main() -> int:
    """The exit status: 0, or 2 when a window cannot be shown here."""
    from app.documents import child

    if sys.argv[1:2] == [child.FLAG]:
        return child.main(sys.argv[2:])
    from app import language
    from app.language import tr

    language.choose(language.wanted(language.setting()))  # before modules that hold texts
    from app import preflight

    preflight.own_libraries_for_nobody_else()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a program of Windows' without a console has none
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if not preflight.has_display():
        why = tr(
            "Kvasir's window needs a display, and there is none here. "
            "Use `kvasir chat` for a chat in the terminal, or `kvasir serve` for the server."
        )
        sys.stderr.write(why + "\n")
        return 2
    if sys.platform.startswith("linux"):
        gaps = preflight.sentence(preflight.missing(preflight.platforms(os.environ)))
        if gaps:
            preflight.tell(gaps)
            return 2
    from app import start

    return start.run(sys.argv, _STARTED)


if __name__ == "__main__":
    sys.exit(main())
