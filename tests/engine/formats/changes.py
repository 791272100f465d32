"""A sound model of one layer, and what can happen to its files by a seed."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

from safetensors.torch import save

from engine.formats.safetensors import DTYPES
from tests.engine.formats.sound_folders import CONFIG, NAME, SOUND, STATED, tensors

SMALL = CONFIG | {"num_hidden_layers": 1}
NUMBERS = (-1, 0, 1, 2, 3, 7, 31, 63, 64, 65, 1 << 16, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64, 10**400)
STRANGE: tuple[Any, ...] = (None, True, "", "4", [], [1], {}, {"a": 1}, 1.5, -0.0, 1e308, "x" * 500, *NUMBERS)


def sound(method: str) -> tuple[dict[str, Any], bytes]:
    """config.json and model.safetensors of a model of one layer, in which one module is packed."""
    held = {name: tensor for name, tensor in tensors().items() if "layers.1." not in name}
    if method == "plain":
        return SMALL, save(held)
    name = NAME.replace("layers.1", "layers.0")
    held.pop(f"{name}.weight")
    held |= {f"{name}.{end}": tensor for end, tensor in SOUND[method].items()}
    return SMALL | {"quantization_config": STATED[method]}, save(held)


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def whole(header: str, body: bytes) -> bytes:
    raw = header.encode()
    return struct.pack("<Q", len(raw)) + raw + body


def strange(rng: random.Random) -> Any:
    """A value of its own: what is put in may be changed later."""
    return copy.deepcopy(rng.choice(STRANGE))


def header_end(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def other_bytes(rng: random.Random, data: bytes, reach: int = 0) -> bytes:
    """Bits flipped, numbers put in, pieces cut out or doubled, the end gone; mostly within ``reach`` (the header)."""
    changed = bytearray(data)
    reach = reach or header_end(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(max(1, min(len(changed), rng.choice((8, reach, reach, len(data))))))
        match rng.randrange(6):
            case 0 | 1 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 2 if rng.random() < 0.5:
                changed[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 8, 9, 13, 255, 1 << 31)))
            case 2:
                number = rng.choice((0, 1, 255, 1 << 31, 1 << 40, 1 << 62, (1 << 64) - 1, len(data)))
                changed[at : at + 8] = struct.pack("<Q", number)
            case 3:
                del changed[at : at + rng.randint(1, 40)]
            case 4:
                changed[at:at] = changed[at : at + rng.randint(1, 200)]
            case 5:
                del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


def other_header(rng: random.Random, data: bytes) -> bytes:
    """Entries of the header changed: types, shapes, offsets that overlap or point elsewhere, names twice."""
    header, body = parts(data)
    names = [name for name in header if name != "__metadata__"]
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(names)
        item = header.setdefault(name, {})
        match rng.randrange(9):
            case 0:
                item["dtype"] = rng.choice((*DTYPES, "I128", *STRANGE))
            case 1:
                item["shape"] = rng.choice((STRANGE, [rng.choice(NUMBERS)] * rng.randint(1, 4)))
            case 2 if isinstance(item.get("shape"), list):
                item["shape"] = item["shape"][::-1]
            case 3:
                item["data_offsets"] = [rng.choice(NUMBERS), rng.choice(NUMBERS)]
            case 4:
                item["data_offsets"] = header.get(rng.choice(names), {}).get("data_offsets")
            case 5:
                header[rng.choice((*names, "x", ""))] = header.pop(name)
                names = [name for name in header if name != "__metadata__"]
            case 6:
                header[name] = strange(rng)
                header = {key: value for key, value in header.items() if isinstance(value, dict)}
                names = list(header)
            case 7:
                key = rng.choice(("dtype", "shape", "data_offsets"))
                item[key] = strange(rng)
            case 8:
                text = json.dumps(header)
                return whole(f"{text[:-1]}, {json.dumps(name)}: {json.dumps(item)}}}", body)
        if not names:
            break
    return whole(json.dumps(header), body)


def other_config(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """Values of the configuration changed, those of the quantisation more often."""
    changed = json.loads(json.dumps(config))
    for _ in range(rng.randint(1, 2)):
        place = changed
        while True:
            key = rng.choice(list(place))
            if not isinstance(place[key], dict) or not place[key] or rng.random() < 0.1:
                break
            place = place[key]
        place[key] = strange(rng)
        if rng.random() < 0.2:
            del place[key]
        if not isinstance(changed, dict) or not changed:
            break
    return changed
