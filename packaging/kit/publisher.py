"""Who publishes Kvasir and where: the one place to fill in before a release that others can download.

What is empty is left out of the package, and the build says so; nothing is made up in its place.
"""

from __future__ import annotations

SINCE = 2026
NAME = "The Kvasir authors"
MAIL = ""
"""Where users of the package write to; the Debian package's Maintainer."""
HOME = ""
"""The project's public page, such as "https://github.com/OWNER/kvasir"."""
PICTURES = ""
"""Where docs/screenshots can be fetched from, such as "https://raw.githubusercontent.com/OWNER/kvasir/main/docs/screenshots".
Software centres read the screenshots there; AppStream allows no pictures inside the package."""
COMPONENT = "io.github.kvasir.kvasir"
"""The AppStream id: the reversed name of a domain that the publisher owns. Never changed after the first release."""
NO_MAIL = "publisher-not-set@kvasir.invalid"
"""Stands where Debian's format demands an address; .invalid belongs to nobody by RFC 2606."""


def unset() -> list[str]:
    """A sentence for each thing that a publisher must still fill in here."""
    gaps = {
        "MAIL": (MAIL, f"the package names {NO_MAIL} as its maintainer"),
        "HOME": (HOME, "the package names no home page"),
        "PICTURES": (PICTURES, "software centres show no screenshots"),
    }
    return [
        f"{name} in packaging/kit/publisher.py is empty: {effect}."
        for name, (value, effect) in gaps.items()
        if not value
    ]
