"""Sound model files of every format, changed by a seed, and the process that tries to load them.

One file again: `python -m tests.engine.formats.mutants FORM SEED`, which shows what happens.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from engine.base.errors import CheckpointError
from engine.compute.sampling.params import resolve
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.loading.runners import new_runner, prove
from engine.protocol import ChatMessage, Sampling
from engine.text.prompt import prompt_ids
from engine.text.template import PromptError
from tests.conformance.gguf_models import KIND, Shape, write
from tests.engine.formats.changes import header_end, other_bytes, other_config, other_header, sound
from tests.engine.text.samples import TEXT, trained, write_folder

_SMALL: dict[str, Any] = {"hidden": 256, "inner": 32, "heads": 1, "kv_heads": 1, "head_dim": 32}
_SHORT_ROWS = {"attn_output": KIND.F16, "ffn_down": KIND.F16}
_GGUF = {
    "gguf-q4_0": Shape("llama", {"": KIND.Q4_0}, **_SMALL | {"hidden": 32}),
    "gguf-q8_0": Shape("llama", {"": KIND.Q8_0}, **_SMALL | {"hidden": 32}),
    "gguf-q4_k_m": Shape("llama", {"": KIND.Q4_K, "attn_v": KIND.Q6_K, "output.": KIND.Q6_K} | _SHORT_ROWS, **_SMALL),
    "gguf-q6_k": Shape("llama", {"": KIND.Q6_K} | _SHORT_ROWS, **_SMALL),
}
_SAFETENSORS = ("plain", "gptq", "awq", "nf4")
_KINDS = ("chatml", "llama3", "sentencepiece", "metaspace", "wordpiece")
_GENERATION = {
    "eos_token_id": [2, 3], "bos_token_id": 1, "do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9,
    "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.1,
}  # fmt: skip
FORMS = (*_GGUF, *_SAFETENSORS, "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
MOST_SECONDS = 5.0
"""Of the process's own time, for one file."""
ROOM = 1 << 30
"""Bytes of addresses beyond what a process has that loaded all sound files."""
_FOREIGN = re.compile(
    r"Errno|0x[0-9a-f]{6}|codec can|Expecting |NoneType|Traceback|operand|index out of|invalid literal|subscriptable|"
    r"has no attribute|argument|[A-Z]\w*Error|int too large|maximum recursion|not iterable|unhashable"
)
"""Words of Python's, torch's or a library's that no sentence of ours has."""


# --- what is changed -----------------------------------------------------------------------------------------------


@functools.cache
def _gguf(form: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "model.gguf", _GGUF[form])
        return (Path(folder) / "model.gguf").read_bytes()


@functools.cache
def _sound(form: str) -> tuple[dict[str, Any], bytes]:
    torch.manual_seed(0)
    return sound(form if form in _SAFETENSORS else "plain")


def other_weights(rng: random.Random, data: bytes, start: int) -> bytes:
    """Bytes of the tensors changed: NaN, infinities, zeros, or anything."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, count = rng.randrange(start, len(data)), rng.choice((1, 2, 4, 64))
        changed[at : at + count] = rng.choice((b"\xff", b"\x7c", b"\x7f", b"\0", rng.randbytes(1))) * count
    return bytes(changed[: len(data)])


def other_json(rng: random.Random, value: dict[str, Any]) -> str:
    """Values changed, put elsewhere, named twice, or the text itself damaged."""
    changed = other_config(rng, value)
    text = json.dumps(changed if isinstance(changed, dict) else value)
    match rng.randrange(6):
        case 0:
            return other_bytes(rng, text.encode(), len(text)).decode(errors=rng.choice(("replace", "ignore")))
        case 1:
            number = rng.choice(("1" + "0" * 5000, "1e999", "NaN", "-Infinity", '"\\ud800"', "[" * 3000, "1e-999"))
            places = [match.end() for match in re.finditer('": ', text)]
            at = rng.choice(places) if places else 0
            return text[:at] + number + re.sub(r"^[^,}]*", "", text[at:])
        case 2:
            return f"{text[:-1]}, {text[1:]}"
    return text


_TEXTS = ("", " ", "e", "▁", "a\u0301ﷺ", "é" * 70, "##", "<unk>", "ab" * 3000, "\0", "\\", "(", "[a", "\U0001f389")
_EXPRESSIONS = (
    "", "a*", r"\s+(?!\S)", r"\p{L}+", "(a+)+$", "[", "a{2,1}", "(?<x>a)\\k<x>", r"\s+$", "(?i:'s)|.", "(?<=a|bc)d",
    "a" * 9000, r"[^\r\n\p{L}]?\p{Lu}*", "((((((((a))))))))", "(?R)", r"\X", "x{0,99999}", "(?:)*", r"\G", "^|$",
)  # fmt: skip
_COUNTS = (0, 1, 2, 3, -1, 1 << 31, 1 << 63, (1 << 64) - 1, 10**30, 1.5, None, "1")
_TYPES = (
    "NFC", "NFKD", "Lowercase", "StripAccents", "Strip", "Nmt", "Prepend", "Replace", "Precompiled", "ByteLevel",
    "BertNormalizer", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit", "Punctuation",
    "Digits", "UnicodeScripts", "Split", "FixedLength", "Metaspace", "ByteFallback", "Fuse", "WordPiece", "BPEDecoder",
    "CTC",
    "BertProcessing", "RobertaProcessing", "TemplateProcessing", "Sequence",
)  # fmt: skip
_PLACES = {
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders", "post_processor": "processors"
}  # fmt: skip


def _step(rng: random.Random, place: str, depth: int = 0) -> dict[str, Any]:
    """A step of the library's, its settings anything; some are of another part."""
    kind = rng.choice(_TYPES)
    text, count = functools.partial(rng.choice, _TEXTS), functools.partial(rng.choice, _COUNTS)
    pattern = {"Regex": rng.choice(_EXPRESSIONS)} if rng.random() < 0.5 else {"String": text()}
    known: dict[str, Any] = {
        "pattern": pattern, "behavior": rng.choice(("Removed", "Isolated", "MergedWithPrevious", "Contiguous", "x")),
        "invert": rng.random() < 0.5, "content": text(), "prepend": text(), "replacement": text()[:1], "split": True,
        "prepend_scheme": rng.choice(("always", "first", "never")), "add_prefix_space": True, "trim_offsets": True,
        "use_regex": rng.random() < 0.5, "delimiter": text()[:1], "length": count(), "individual_digits": True,
        "strip_left": True, "strip_right": True, "start": count(), "stop": count(), "prefix": text(), "suffix": text(),
        "cleanup": True, "pad_token": text(), "word_delimiter_token": text(), "sep": [text(), count()], "single": [],
        "cls": [text(), count()], "special_tokens": {}, "pair": [], "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": True,
        "precompiled_charsmap": rng.choice(("", "AAAA", "BAAAAAAAAABhAA==", "/////w==", "?")),
    }  # fmt: skip
    known[_PLACES[place]] = [_step(rng, place, depth + 1) for _ in range(rng.randint(0, 3))] if depth < 3 else []
    if rng.random() < 0.1:
        del known[rng.choice(list(known))]
    return {"type": kind} | known


def _other_tokenizer(rng: random.Random) -> str:
    """Steps changed, or those of one kind in another."""
    file = json.loads(trained(rng.choice(_KINDS)))
    if rng.random() < 0.6:
        place = rng.choice(list(_PLACES))
        file[place] = _step(rng, place)
        return json.dumps(file)
    if rng.random() < 0.4:
        part = rng.choice(("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "model"))
        other = json.loads(trained(rng.choice(_KINDS)))
        file[part] = copy.deepcopy(other[rng.choice((part, "normalizer", "decoder", "pre_tokenizer"))])
    model = file.get("model")
    if rng.random() < 0.3 and isinstance(model, dict) and isinstance(model.get("vocab"), dict):
        vocab, merges = model["vocab"], model.get("merges", [])
        token = rng.choice(list(vocab))
        vocab[token] = rng.choice((0, -1, 7, 1 << 31, 1 << 40, 10**30, len(vocab)))
        if merges:
            merges[rng.randrange(len(merges))] = rng.choice((["a"], ["zz", "yy"], "a b", "a", [], [token, token]))
    return other_json(rng, file)


def make(folder: Path, form: str, seed: int) -> Path:
    """A model whose file of the form is changed by the seed; a negative one leaves it sound."""
    rng, changes = random.Random(f"{form} {seed}"), seed >= 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if form in _GGUF:
        data = _gguf(form)
        made = (lambda: other_weights(rng, data, 6000), lambda: other_bytes(rng, data, rng.choice((64, 6000))))
        (folder / "model.gguf").write_bytes(made[seed % 3 > 0]() if changes else data)
        return folder / "model.gguf"
    config, data = _sound(form)
    text = json.dumps(config)
    if changes and form in _SAFETENSORS:
        choice = seed % 4
        data = other_bytes(rng, data) if choice == 0 else data
        data = other_header(rng, data) if choice == 1 else data
        data = other_weights(rng, data, header_end(data)) if choice == 2 else data
        text = json.dumps(other_config(rng, config)) if choice == 3 else text
    write_folder(folder, "chatml")
    (folder / "model.safetensors").write_bytes(data)
    (folder / "config.json").write_text(other_json(rng, config) if changes and form == "config.json" else text)
    (folder / "generation_config.json").write_text(json.dumps(_GENERATION))
    if changes and form == "generation_config.json":
        (folder / form).write_text(other_json(rng, _GENERATION))
    if changes and form == "tokenizer.json":
        (folder / form).write_text(_other_tokenizer(rng))
    if changes and form == "tokenizer_config.json":
        (folder / form).write_text(other_json(rng, json.loads((folder / form).read_text())))
    return folder


# --- what is done with it --------------------------------------------------------------------------------------------


def load(path: Path) -> None:
    """All that a load reads, and one question."""
    opened = open_checkpoint(path)
    tokenizer, template = opened.tokenizer(), opened.chat_template()
    for text in TEXT[:4]:
        ids = tokenizer.encode(text)
        tokenizer.decode(ids)
        b"".join(tokenizer.id_to_bytes(token) for token in ids)
    prompt_ids(tokenizer, template, [ChatMessage.of("user", "x")])
    resolve(Sampling(), opened.generation_config.sampling)
    model = load_model(opened, torch.device("cpu"), torch.float32)
    prove(new_runner(model, 2, torch.device("cpu")), opened)


def verdict(path: Path) -> tuple[str, str]:
    """What the load said, "" where it went well; and what is wrong with how it went, "" for nothing."""
    began, said = time.process_time(), ""
    try:
        load(path)
    except (CheckpointError, PromptError) as error:
        said = str(error)
    except BaseException:
        return said, traceback.format_exc()
    if time.process_time() - began > MOST_SECONDS:
        return said, f"it took {time.process_time() - began:.1f} s"
    if said and (not said.endswith(".") or "\n" in said or len(said) > 1100 or _FOREIGN.search(said)):
        return said, f"no sentence of ours: {said}"
    return said, "" if said.isprintable() else f"cannot be shown: {said!r}"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def serve() -> None:
    """Lines of "FORM FIRST END" in, and for each seed a line with its verdict out."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    for form in FORMS:
        assert verdict(make(folder / "model", form, -1)) == ("", ""), form
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    say("ready")
    try:
        for line in sys.stdin:
            form, first, end = line.split()
            for seed in range(int(first), int(end)):
                say(json.dumps([seed, *verdict(make(folder / "model", form, seed))]))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1:]:
        say("\n".join(verdict(make(Path(tempfile.mkdtemp()) / "model", sys.argv[1], int(sys.argv[2])))))
    else:
        serve()
