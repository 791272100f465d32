"""Text to token ids and back, by the ``tokenizers`` library.

``tokenizer.json`` is read, and which texts are one token also from the files next to it
(:mod:`engine.text.token_files`). How ids become text is told from its decoder: byte-level BPE and SentencePiece-style
pieces are turned into bytes one token at a time; any other decoder goes through the library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tokenizers

from engine.base.errors import CheckpointError
from engine.base.files import read_small
from engine.text.longest import TokenizerParts, longest
from engine.text.patience import Patience, StillBusy, TookTooLong
from engine.text.registering import Contradiction, registered
from engine.text.template import PromptError
from engine.text.token_files import TokenFiles
from engine.text.tokenizer_bounds import MAX_MADE, TooMuch, growth_of, judged

PATIENCE = 20.0
"""Seconds for a text of any length."""
LEAST_SPEED = 50_000
"""Characters a second; usual are a million and more."""
BUILDING = 120.0
"""Seconds in which a tokenizer has to be built; the largest take two."""
MAX_FILE = 64 << 20
"""Bytes of a tokenizer.json; the largest known have 35 million."""

# Each text is tokenised in the thread that asks: in the library's own few threads a short one waits for long ones.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class TokenizerError(CheckpointError):
    """The folder has no usable tokenizer; the message is a sentence for a person."""


class PieceRules(NamedTuple):
    """Rules by which a vocabulary entry becomes bytes, where that is possible one entry at a time.

    ``byte_level``: characters stand for bytes (GPT-2's table). Otherwise every ``replace`` is applied in order, then
    ``byte_fallback`` turns ``<0xE2>`` into that byte. ``strip_leading`` spaces go from the start of the whole text;
    ``strip_first_piece`` removes every space of the first piece instead (Metaspace).
    """

    byte_level: bool = False
    replace: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    strip_leading: int = 0
    strip_first_piece: bool = False


class TextPair(NamedTuple):
    """Two texts in one: ``ids`` of both, and of those the ``second`` text's own. ``typed``: the place from which on
    tokens are of BERT's second type; 0: none are."""

    ids: list[int]
    second: slice
    typed: int


class Tokenizer:
    """One tokenizer. Safe to use from several threads at once."""

    def __init__(self, inner: tokenizers.Tokenizer, ends: Sequence[str] = (), notices: tuple[str, ...] = ()) -> None:
        """Wrap a tokenizer in memory. ``growth``: how many characters one of a text becomes at most. ``ends`` are the
        texts that its files call the end of a text, and ``notices`` sentences about these files."""
        inner.no_truncation()  # some files carry a limit, which would cut prompts silently
        inner.no_padding()
        self.inner, self.notices = inner, notices
        self._parts = msgspec.json.decode(inner.to_str().encode(), type=TokenizerParts)
        self.growth, self._patience = growth_of(self._parts.normalizer, self._parts.pre_tokenizer), Patience()
        self.special_ids = frozenset(token.id for token in self._parts.added_tokens if token.special)
        self.rules = piece_rules(self._parts.decoder)
        self._bytes: dict[int, bytes] = {}
        self.end_ids = tuple(id for id in map(self.token_id, ends) if id is not None)
        """The tokens that its files call the end of a text."""

    @classmethod
    def open(cls, folder: str | Path, rows: int | None = None) -> Tokenizer:
        """Read ``folder/tokenizer.json``, and what the files next to it say of its tokens.

        ``rows`` of the token table: a token that has none is left out. Raises :class:`CheckpointError` with a sentence.
        """
        raw = read_small(Path(folder) / "tokenizer.json", MAX_FILE)
        if raw is None:
            hint = "Save the tokenizer with transformers (save_pretrained) and put that file next to the weights."
            raise TokenizerError(
                f"{Path(folder).name} has no tokenizer.json, so text cannot be turned into tokens. {hint}"
            )
        name = f"The file tokenizer.json of {Path(folder).name}"
        try:
            file, said = judged(raw), TokenFiles.open(Path(folder))

            def build() -> Tokenizer:
                inner = registered(tokenizers.Tokenizer.from_buffer(file), said.marks, rows)
                return cls(inner, said.ends, said.notices)

            return Patience().run(build, BUILDING)
        except Contradiction as error:
            raise TokenizerError(
                f"The files of {Path(folder).name} contradict each other: {error}. Download them again, or choose "
                "another version of the model."
            ) from error
        except TooMuch as error:
            raise TokenizerError(
                f"{name} {error}. Download it again, or choose another version of the model."
            ) from error
        except TookTooLong as error:
            raise TokenizerError(f"{name} cannot be read: it takes without end. Download it again.") from error
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(
                f"{name} cannot be read ({_one_line(error)}). "
                "Download it again; an older Kvasir may also not know its format."
            ) from error

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids of ``text``. ``special`` adds what the tokenizer puts around plain text (such as begin-of-text);
        a rendered chat template already contains it. Lone surrogates, which are not text, are replaced.

        Raises :class:`engine.text.template.PromptError` for a text that takes too much: some expressions by which words
        are found need the square of a text's length.
        """
        return list(self._encoded(text, special).ids)

    def encode_pair(self, first: str, second: str) -> TextPair:
        """Token ids of two texts in one, with what the tokenizer puts around and between them. Raises as
        :meth:`encode` does."""
        found = self._encoded((first, second), True)
        texts = found.sequence_ids
        begin = texts.index(1) if 1 in texts else len(texts)
        types = found.type_ids
        return TextPair(list(found.ids), slice(begin, begin + texts.count(1)), types.index(1) if 1 in types else 0)

    def _encoded(self, text: str | tuple[str, str], special: bool) -> tokenizers.Encoding:
        length = len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
        if length * self.growth > MAX_MADE:
            raise PromptError(f"A text of {length:,} characters is too long for this model's tokenizer. Shorten it.")

        def clean(one: str) -> str:
            return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", one)

        given = clean(text) if isinstance(text, str) else (clean(text[0]), clean(text[1]))

        def encode() -> tokenizers.Encoding:
            # A batch of one: ``encode`` keeps all other Python threads waiting, and measures offsets that nobody reads.
            return self.inner.encode_batch_fast([given], add_special_tokens=special)[0]

        try:
            return self._patience.run(encode, PATIENCE + length / LEAST_SPEED)
        except StillBusy as error:
            raise PromptError(
                "This model's tokenizer is still at work on an earlier text that takes very long. Try again later, or "
                "load the model again."
            ) from error
        except TookTooLong as error:
            raise PromptError(
                "This model's tokenizer does not come to an end with this text. Take out long runs of spaces or of one "
                "character, or load another version of the model."
            ) from error
        except Exception as error:  # the library raises bare Exception
            raise PromptError(
                f"This model's tokenizer cannot read the text ({_one_line(error)}). Load another version of the model."
            ) from error

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of all ids at once; one unreadable character where the tokenizer's decoder cannot make any."""
        try:
            return str(self.inner.decode_batch([list(ids)], skip_special_tokens=skip_special)[0])
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # panics of the library are no Exception
            return "\N{REPLACEMENT CHARACTER}"

    @cached_property
    def special(self) -> dict[str, int]:
        """The ids of the special tokens by their texts."""
        return {self.token(id): id for id in sorted(self.special_ids)}

    @cached_property
    def vocabulary(self) -> int:
        """Number of ids: the largest id plus one."""
        return max(self.inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def longest(self) -> int | None:
        """Bytes of text that one token stands for at most; None where that has no bound."""
        return longest(self._parts, self.inner.get_vocab(True))

    def token(self, token_id: int) -> str:
        """The vocabulary entry as it stands in the file; empty for an id that the tokenizer does not have."""
        return self.inner.id_to_token(token_id) or ""

    def token_id(self, token: str) -> int | None:
        """The id of a vocabulary entry."""
        found: int | None = self.inner.token_to_id(token)
        return found

    def id_to_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for in the middle of a text; special tokens stand for none."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._to_bytes(token_id)
        return found

    def _to_bytes(self, token_id: int) -> bytes:
        if token_id in self.special_ids:
            return b""
        if self.rules is None:
            return self.decode([token_id]).encode()
        return piece_bytes(self.token(token_id), self.rules)

    def piece(self, token_id: int) -> str:
        """Text to show a person for one token, or its name if it has none."""
        return self.id_to_bytes(token_id).decode(errors="replace") or self.token(token_id)

    def difference(self, other: Tokenizer) -> str:
        """Reason that ids of the two tokenizers do not mean the same, or an empty string (a draft model needs the
        same)."""
        mine, theirs = self.inner.get_vocab(True), other.inner.get_vocab(True)
        if mine == theirs:
            return ""
        if len(mine) != len(theirs):
            return f"their vocabularies have {len(mine):,} and {len(theirs):,} entries"
        token = min((t for t in mine if theirs.get(t) != mine[t]), key=lambda t: mine[t])
        return f"their vocabularies differ, first at token {mine[token]} ({token!r})"


def piece_rules(decoder: dict[str, Any] | None) -> PieceRules | None:
    """The rules of a tokenizer.json's decoder; ``None`` when entries cannot be turned into bytes one by one."""
    if decoder is None:
        return None
    if decoder.get("type") == "ByteLevel":
        return PieceRules(byte_level=True)
    if decoder.get("type") == "Metaspace":
        space = str(decoder.get("replacement", "▁"))
        return PieceRules(replace=((space, " "),), strip_first_piece=decoder.get("prepend_scheme", "always") != "never")
    if decoder.get("type") != "Sequence":
        return None
    rules, fused = PieceRules(), False
    for step in decoder["decoders"]:
        match step:
            case {"type": "ByteLevel"} if rules == PieceRules():
                rules = PieceRules(byte_level=True)
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if not rules.byte_fallback:
                rules = rules._replace(replace=(*rules.replace, (old, new)))
            case {"type": "ByteFallback"}:
                rules = rules._replace(byte_fallback=True)
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0} if fused:
                rules = rules._replace(strip_leading=rules.strip_leading + start)
            case _:
                return None
    return rules if rules.byte_level or rules.replace else None


def piece_bytes(token: str, rules: PieceRules) -> bytes:
    """The bytes of one vocabulary entry."""
    if rules.byte_level:
        table = _byte_of_character()
        found = [table.get(character) for character in token]
        # An added token may hold characters that stand for no byte: then it is plain text.
        return token.encode() if None in found else bytes(b for b in found if b is not None)
    for old, new in rules.replace:
        token = token.replace(old, new)
    if rules.byte_fallback and _BYTE.fullmatch(token):
        return bytes([int(token[3:5], 16)])
    return token.encode()


_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


@cache
def _byte_of_character() -> dict[str, int]:
    """GPT-2's table (Radford et al. 2019): printable Latin-1 stands for itself, the other bytes for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
