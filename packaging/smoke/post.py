"""One HTTP request, run in the network of the inside: ``python3 post.py URL`` with {token, body} on standard input.

Standard library only, one file: it is started by the host's Python. Prints the status, a line break, and the reply.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 180.0


def post(url: str, token: str, body: dict) -> tuple[int, str]:
    """What an error status says is a reply too."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(*post(sys.argv[1], asked["token"], asked["body"]), sep="\n")
