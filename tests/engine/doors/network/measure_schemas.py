"""Answers held to JSON schemas, with and without speculation: python tests/engine/doors/network/measure_schemas.py
FOLDER PORT TOKEN_FILE [count]

At the port ``kvasir serve`` runs, with a model and its draft. ``count`` schemas, drawn by lot from the files of the
folder, are each asked for with the draft guessing and without; quotes and closing brackets are made likely, so that
answers end. Prints of each way how many answers jsonschema calls valid, how many were refused, or had no end in so many
tokens, and how many tokens that were guessed or forced were kept.
"""
# ruff: noqa: T201

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import jsonschema
from websockets.sync.client import ClientConnection, connect

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from engine import protocol as p
from engine.protocol import keys

AT_ONCE, TOKENS, BIAS = 8, 300, 4.0
CLOSING = ('"', "}", "]", '"}', '"]', "}}", "]}")
WAYS = ("off", "draft")


def closing(port: int, token: str) -> dict[int, float]:
    """What is added to the scores of tokens that end something."""
    headers = {"Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{port}/tokenize"
    ids = [httpx.post(url, json={"content": text}, headers=headers).json()["tokens"] for text in CLOSING]
    return {each[0]: BIAS for each in ids if len(each) == 1}


def judged(schema: Any, text: str) -> str:
    check = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
    try:
        check.validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError) as wrong:
        print("INVALID", json.dumps(schema)[:2000], text, wrong, sep="\n")
        return "invalid"
    except Exception as error:  # jsonschema follows no reference to the web, and Python's re knows less than others
        print(f"not judged: {type(error).__name__}: {str(error)[:100]}")
        return "not judged"
    return "valid"


def answers(
    socket: ClientConnection, schemas: list[Any], sampling: p.Sampling, found: Counter[tuple[str, str]]
) -> None:
    """Ask for each schema in each way, all at once, and count what came."""
    texts = {f"{way} {number}": "" for way, number in itertools.product(WAYS, range(len(schemas)))}
    for id in texts:
        way, number = id.split()
        form = p.StructuredOutput("json_schema", json.dumps(schemas[int(number)]))
        asked = p.Generate(
            id=id,
            prompt="A record, please.",
            sampling=sampling,
            structured=form,
            optimisations={keys.SPECULATION: way},
        )
        socket.send(p.encode(asked))
    while texts:
        match p.decode_from_engine(socket.recv()):
            case p.Delta(id=id, text=text):
                texts[id] += text
            case p.Error(id=id, message=message) if id in texts:
                found[id.split()[0], "refused" if "cannot be served" in message else message] += 1
                del texts[id]
            case p.Finished(id=id, reason=reason) as message:
                way, number = id.split()
                found[way, "drafted and kept"] += message.timings.accepted
                found[way, "tokens"] += message.usage.generated_tokens
                ended = {"stop": "", "length": "no end"}.get(reason, message.detail)
                found[way, ended or judged(schemas[int(number)], texts[id])] += 1
                del texts[id]


def main(folder: str, port: str, token_file: str, count: str = "500") -> None:
    token = Path(token_file).read_text().strip()
    files = sorted(Path(folder).rglob("*.json"))
    random.Random(1).shuffle(files)
    schemas = [json.loads(file.read_text()) for file in files[: int(count)]]
    sampling = p.Sampling(temperature=1.0, seed=1, max_tokens=TOKENS, logit_bias=closing(int(port), token))
    found: Counter[tuple[str, str]] = Counter()
    with connect(f"ws://127.0.0.1:{port}/ws", max_size=p.MAX_FRAME, compression=None) as socket:
        socket.send(p.encode(p.Hello(token=token, protocol=p.PROTOCOL)))
        for first in range(0, len(schemas), AT_ONCE):
            answers(socket, schemas[first : first + AT_ONCE], sampling, found)
            print(first + AT_ONCE, flush=True)
    for (way, what), number in sorted(found.items()):
        print(f"{way}: {what} {number}")


if __name__ == "__main__":
    main(*sys.argv[1:])
