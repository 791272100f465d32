"""ggml's types below four bits that index a codebook: eight (or four) neighbours in a row are one entry, with signs.

A codebook has some of all combinations of a few magnitudes, in the order of numbers whose lowest digit is the first
magnitude; so a bit for each combination says which it has. They are those of ggml's ``ggml-common.h`` (MIT licence),
``iq2xxs_grid`` and its like, as are the layouts.
"""

from __future__ import annotations

import base64
import functools
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.linear.ggml_fields import Decoded, fields, half


class _Book(NamedTuple):
    """Entries of ``width`` ``levels``; ``members`` has a bit for each combination, the lowest first, in base64."""

    levels: tuple[int, ...]
    width: int
    members: str


_BOOKS = {
    "IQ2_XXS": _Book(
        (8, 25, 43),
        8,
        "VRUUVRBEQUEABBREABAAAAAEQAAUAEAAAAAABAAAUBBAQREAARQEQFAEQAAQAAAFEAAAUAAAAQAAQAAAQRQEQBQUAAAEAAAEAAAEAAAAAAAA"
        "BBAAAAAAAAAAABQEEBAAQAAEEQAEARAAQEAAAQAAAAAAAQQAAAAAABAEQARAAAAEAAAAABAAAAAQAAAAQAAQAAAAAAAAAAAFAQAEAABAAAAA"
        "EQAAAAAAAAAAAQAAAABAAAAAAAAUBAAAAQABBQAAAAAAEBAAAAAAAFAAAAAAAAAAAABAQQAAAUAAAAAAQAAAAAQAQAAAAAAAAAAAAAAAQAAA"
        "QAAEAAAAAAAEAAAAAAAAAAAAAAAAAAAAAQAAAAAAUBBEQRAQARQEABAAQAAAAAREAABAQAAAQEAAAQAAQBAAAQAAABAAEAAABBAAAAAAAAAA"
        "AQAAAAAAAAAAABQEABABAAAAAAAEAAAAABABBAAAAAAAAAQAAAAEABBEUAAAAAAEAQAAAQAABAAAAAAAAQAAAAAAAABAAAAAAAAAAAAAQAEA"
        "AAEAAAAAAAAAAAQAAAAAAQAAAAAEEAQAAAAEAAAAAAAAQAAAAAAAAAAEAAAAAAAAAAAAQQAAAQAAAQAAQAAAAABAAAAAAAAAQAAAABAAAAAA"
        "EQAAAAAAAAAAAAAUAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQEEAAAQAAEAAAAAEQAAEAAAAAAAA"
        "AAQAAAAAAAAAABREABAAQAAAAAAEAAAABAAAABAAAAQAQAAAAQAAAEAAAAAAAAAAAAAAAQAAAAAAAAAAAAABAAAAAAAAAAAEARAEAAAAAAAB"
        "AEAAAAAAQAAAAAAAAAABAAAAAAAEAEAAAQAAAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAQAAAAAAAAAAAAAAAAAAAAAA"
        "BAAAABAAAAQAAAABAAAAAAAAAAAEAAAAAAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEAAAAAAAEAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAA=",
    ),
    "IQ2_XS": _Book(
        (8, 25, 43),
        8,
        "VVVVUVVFQRVFAVRVVVBFQRAFAQBUURBAQQQAAQEAUFVFQRUVARQEAFBFQQAFAQQEAABAQQAQBQAAQAAAQFUFERQEARAAQEAFAQAEAABAEAAA"
        "AQAEAQAAAAAQAVRVUVBFQUAFAQBUURBAQQAAAVAAUBEAQAAAAQAAAFBFQQBFARAEAABAQQAAAQAAAAAAQAAEAAABAAAAAAAFBQAEQAAABAAA"
        "EQAAAAAABAAAAAAAAABAAAAAAABVVRBAQQAAAQAEUBAAQBAAEAAAABAAAAEAAAAEAABEQQBAAQAAAAAAQAAAAAQQAAAAEAABAAEAAAAAAAAQ"
        "QQEEAAABABAABAAAAAAAABAAAQAAARAAAAAARAEAUFVFQVUFERQEAFBFQQAFAQBEAEBAQQFAAQAAAAAAQBVFARQEABAAAQAFARAEAAAAAEAA"
        "AQEAQBAAAAAAABQEABABAQEAAAAEEAAAQQBAAAAAQAAAAAAAAAAAAFBFQRAFAQAEAABAQQQABQAAAAAAQAAAABAAAAAAAEAFAQQEABBAAAAB"
        "QQAAAAAAQBAAAAAAEAAAABAAAAQEQABAQAAAAAABAAAQQAEAAAAAAAAAAAAAAABAAABAQQAAARAQAAEAUAAAAAAAAAAAAAAAABAABAAAAAEA"
        "AUAAAAAAAAAAAAAEABABAAAAABAAAAAAAAAAAAAAEAAAAAAAAAEAAAAAAAQAAAAAAAAABAAAABAQAAAAQBUFARUEAFAAAFAVAQAEEAQAAAAA"
        "AQAEAAAAQAEAQRRUABAAQABAAAAEAAAAAQAAAABAAAAEAAAAAAEAABAEAAQAAAEUAAAEBAAAAAAAAAAAAAAABAAAABAEBBAFAQAEAAEAAQAA"
        "AQAQAAAAAQAAAAAAAAAABABAAABEAAAAQRAAAAAAAAAAEAAAAAAUAAAAAAABAAAAAAAAAAAAAAQAAAAABAAAAAABAAAAAAAAEAAAABAAAAAA"
        "RQEEBAAAAAAAAQAAAABAEAAAAEAUAQAQAAAAAQAEAAAAQAAAAABAAAAAAAAAAAAAAAAAAAAAAABAAAAEAEAARQAAAAAAQBAEAAAAAAAABQAA"
        "AAAABQAAAAABAAE=",
    ),
    "IQ2_S": _Book(
        (8, 25, 43),
        8,
        "VVVVUVVFVRUFEVVVUVBFVRQFFRRUURBQVQQAEREQUFVFVVVVFVRFUVBVVRRVVRRUURBAVQQAURQEUBAAQBVVEVVVURABAUAFVQREURBAQAAA"
        "ARQQBRAAAABAAFRVUVFFVRUVURRUVVVFVRUFVRQAUBRBQQQFABQEAFBFVRRVVRRUURBAVRUFVRQEUBAAQBQFARQEABAAAEBVUQRUURBAAQAA"
        "VRQEUBAAEAAABBAEABAABAAAAABUURVRQQUEAREAVFBBQAUFARQEABAQAFEEAQAABQBEVRQFVRQEUBAAQBQFARQEABEAAAAFAQAEAAQAAAAA"
        "ERQAUBAAAEAAABUEAAAAAAAAEAAABEAAAAAEQAEAUFVVRVVVFRREUVBFVQVVVRRUURBAQRUEURQEUAAAQFVVVVRVUVBFQQBVVRRUURBQQQAA"
        "VRQEUBAAQAAAEBRVUVBFQQAEAQBUURBAQQAAAUAAUBAAQAAAAAAAAFBFVRVVVRRUUQBAVRUFVRQEUBAAQBQFARQEABQAAABVVRRUURBAQQAA"
        "VRQEUBAAQAAAABQEABEAAAAAAABUURBAQUAAAQAAUBAAQAAAAAAAABAAEAAAAABAAABERRUFURQEQBAAQBUFARQEABAAEAAEAQAEAAEAAAAB"
        "URQEUBAAQAAAABQEABAQABAABAAEAAAAAAAAABAAUBAAAAAAEAAAARAAAEAAAAAAAAAAAAAABAAAAABAQBVFERRUERBBAQBFVRRUUQBAQQBA"
        "ERUAUBAAAAAAAFRVEVBFQQAFAQBUURBAQQAAAQEAUBAAUAAAAAAAABBBAQAFAQAAAEBAAQAAAQBAAAAAAAAABAAABUAAAAFFVRBUURBAQQAA"
        "ERQAUBAQAAAAABQEABAAAAAAAEBUURBAQQAAAUAAUBAAQAAAAAAAERAAAAAQABAAAABAQQAQAQAAAAAAUAAAAAARAAAAAAAAAAAAAAAAQAAA"
        "EREQVBAAAAAABAEAABAAAAQAAAAQBEAUAAAARAEAURAAQAAAAAABQBAAEAAAAAAAAAAAAAAAAAQAAAAAAEAAQAAAAAAAAAEAAAAAQAAABAAA"
        "QAEUAQAAABAAAAE=",
    ),
    "IQ3_XXS": _Book(
        (4, 12, 20, 28, 36, 44, 52, 62),
        4,
        "FYoFAgQAACgKBSIFAhAAARUCBYoAggAgggUgAAAAAAEACACAEIAAKIIAAAQABAAAAAAAIAAAEAAAUQAACAACAAoFChWAAQAABQIFAAAAAAAK"
        "BQIBAAAABAUAAQJAAEAAIgAAAAABAAAAABEAQAAAAiAAAAAAAAAAAAAEAAEAAAAFCkUCBAAAACoFAgEAAIgBBYIFgAEgAAACEQAAAAAAEQAA"
        "ACAACAAACACAAAIAABAAAAAAAAAAAApAAAAgAAAAAgUKAAABIAQFAAECUAAAAAoBIAAABAAEAAIACAAAAAAAAAABgAAABEEABAAAIAAAABAA"
        "QAAACAAAAAAIAAABABCAAKAAiAAAAAAAAAAAABAAAAGAAQBBAIAAAAAgAAAAEAAAAAACEAAAACAACAAAAQAAAAAAAAAAIAUAAQAAAAAABAAA"
        "AgAAAUEAQAAAIAAAABAABAAAAAQEAAAAAAgAAAABiAAAAAAEBAAAAgAAAAAAAAAAAAEAAAAAEAAEAAAAAAAQAFAAEAAAAAIAAAACAACAAAAA"
        "ABAAAAAAQQAAAAAAAAAAEAAAACAAAAAABAAAAAAACAAAAAAIAAIAAAAAAKgBAAQABAAAAABAAAEAAAAABAAAIAQAAAEgAAgAAAEAAAACAAIA"
        "AAAFABAAAAAAAAAAAAEAAAAAAAAAAAAAAAA=",
    ),
    "IQ3_S": _Book(
        (1, 3, 5, 7, 9, 11, 13, 15),
        4,
        "p1cjCKUKBZIXI4kiEAAiBKNJIhGkCgAJCCIFShAFgCIBiBIECQIAARQARQiiAEAIQAoAAgAEAAIVAEUIABEAABerBVIAUAIESxECCQIFAEEB"
        "pBEECSABBJIJghECAAQBKBQACkQRAAACCQIFAAIAAAAAkQBQAAAACgUCIAIABAGrVYoFKgWAKQWJJBIEAgAAkgAKgQKIABIlAhQKBAFAAIIA"
        "CSQCAAAkEAIEgAEIAAGFAAIAACACACACQAEIAQAABKoEKpQCCAIqEAoAAQABRAEEARQAAQAAAhGKAYogAAgIQgQCAAQRAAIFIAQQQAAIAEAA"
        "AAIAAAAKAAUgAAAAABEEkQQCAQABhAoEIQgiAAAKIQIIAYAEARAKBSIAAAAABQAQgAEAAAKgAAIAAAAEAAAIABAAAAEAACEAAQgCAAAEEQQA"
        "kQRAECoEAgQAAAAEAQIIQQAIAACEAYAAEAIgCBIAAQRAAAAAAARAAAAKAAAAAAAABAAAABQABAAAAAAAACoACgAAAQABAIEAAAAQAAAEABAE"
        "IAQBARACAAEAAAAAACAACAAEAAkAABAAAAEAIAAAAAEAAAAACgAAAAAAAJEABUABEAQABAIQACgAAAASQQIBAAIAAAQAACQACAAAIggBAAAB"
        "AAAAAAQABAAAAAQAAAIAAAAAAQAAAAAAAAA=",
    ),
    "IQ1_S": _Book(
        (-8, 0, 8),
        8,
        "VSUUhaACQlEIRTGohiCKohoIKiAUhVAUgiBERSUVBaACgiCIGAAIgqADKqCIu6oKkKoLACIACqqMgqAIQFEIRSGIgFAUQlEIijAImKAIgCoI"
        "RSEUhSBIQlUIRQEswqAgiiYAKiSoqqII4q8ICCgoAKACQiiqKCCogCAKmwi5uqggyq6Joq6qOnzr6rq7gg64IrrK0w6SAiIAIiCoiroKggII"
        "ACpK4KI7IiArogCBQIGqiigIIgEUhVAVgiAJRSFUhaAIAiOoOiCEgiBUQlEIoiAIlVAUAioIuKiCgKBIAiAIgqJoogIoqyoIhSAIgjAIRUAA"
        "RSEUhaAAQlEARQEpggCKgioIoTAUBVAUgigIRSEUhSACAiCqKgAgErGKriiouqGqqHAAggoIAigiAoQAggBIgKDqsCqqwiCLuiLq2qeLi26o"
        "krAqqnKLikQMKiBIhEAoiioIqiDIzKIioq+aoOioAgACACqoiAAggKCLoqIouqCAgjIKur64uv7roqArogiKCijqogChMgIM+qTq3u8rqC6N"
        "vn7r+vd/v+Z9ut5p+yf/vyb6EunhiiIQqr4OhKoIsqgLgq7/uiTpg4AEYixo8qgKpCsAAioICOKqEgACgioKpiDJgomQgigAogCMgBMAgggI"
        "AGyKqqq7Aqa+iqDKAoBrly7QsukQghAuqt4oFdGlBAAKggCKgiAIAaEggqo5uiIyhKAJgBgAiqJiAoEURFEARSGsglAUQlEIqiAoqocKEioI"
        "RSEUBaAIQlEIRQEgAqBAoiIAiAAIoghqim64qqqAACAKguLIIiEIRFAUQlEJiiAVhVAUhgoIqioqgAAKQlEIRSGoAFAUQlEI4iCIggoYgioI"
        "qqKqirCLAgoqqiAogoCqCigIKACpiAIioL4LKLgIirpLsq7/uqT4rqogUihotqAw5oAKAigIImpigCAKAqqqK6rqoqmgoggIECCgiiIAgg4A"
        "RSEUhaAKQFEIRSGpBgBKqgIIpQAQDUQUgigIRSEUBQAIgoKs8iAAAACqCigKuiDqogIAgkgJKOkUABFLRVEARQGoAlAUQlEIiCQIiCgKQAgA"
        "RQEUBaACQFEIRQE=",
    ),
}
"""By the first type that has it: IQ1_M's is that of IQ1_S, whose levels are in eighths."""


def levels(name: str) -> tuple[int, ...]:
    """The magnitudes that the codebook of ``name`` combines; of IQ1 numbers of both signs."""
    return _BOOKS[name].levels


def digits(name: str) -> Tensor:
    """A codebook's entries ``[entries, width]`` int64 as places in its levels."""
    levels, width, members = _BOOKS[name]
    held = torch.frombuffer(bytearray(base64.b64decode(members)), dtype=torch.uint8)
    return fields(held[None], 1, 1)[0].nonzero() // len(levels) ** torch.arange(width) % len(levels)


@functools.cache
def book(name: str, device: torch.device) -> Tensor:
    """A codebook's entries ``[entries, width]`` int8."""
    with torch.inference_mode(False):
        return torch.tensor(levels(name), dtype=torch.int8)[digits(name)].to(device)


def _looked_up(name: str, indices: Tensor) -> Tensor:
    """``indices [n, entries of a block]`` -> codes ``[n, 256]`` int8."""
    return book(name, indices.device).index_select(0, indices.flatten().int()).view(len(indices), -1)


def _words(blocks: Tensor, start: int, stop: int, dtype: torch.dtype) -> Tensor:
    """Bytes ``[start, stop)`` of each block as int32, of 16 or 32 bits each."""
    # A copy, as words of 32 bits do not begin where a view of them may.
    return blocks[:, start:stop].clone(memory_format=torch.contiguous_format).view(dtype).int()


def _turned(codes: Tensor, signs: Tensor) -> Tensor:
    """Codes ``[n, 256]``, those negative whose bit of ``signs [n, 32]`` uint8 is set."""
    return codes * (1 - 2 * fields(signs, 1, 1).view(torch.int8))


def _even(signs: Tensor) -> Tensor:
    """Seven signs (any integers) -> eight (uint8), of which an even number is negative."""
    parity = signs ^ signs >> 4
    parity = parity ^ parity >> 2
    return (signs | ((parity ^ parity >> 1) & 1) << 7).to(torch.uint8)


def _odd(blocks: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Scales: the float16 that heads blocks times the odd numbers ``2 n + 1``, of which a ``share`` counts; exact."""
    return half(blocks, 0) * ((2 * numbers + 1).float() * share)


def _nibbles(packed: Tensor) -> Tensor:
    return fields(packed, 1, 4)


def _sevens(words: Tensor) -> Tensor:
    """The four sets of seven signs in 28 bits of words ``[n, 8]`` -> ``[n, 32]`` uint8."""
    return _even(words[..., None] >> torch.arange(0, 28, 7, device=words.device) & 127).flatten(1)


def iq2_xxs(blocks: Tensor) -> Decoded:
    indices = blocks[:, 2:].unflatten(1, (8, 2, 4))[:, :, 0].flatten(1)
    words = _words(blocks, 2, 66, torch.int32)[:, 1::2]
    codes = _turned(_looked_up("IQ2_XXS", indices), _sevens(words))
    return Decoded(codes, _odd(blocks, words >> 28 & 15, 0.125))


def iq2_xs(blocks: Tensor) -> Decoded:
    words = _words(blocks, 2, 66, torch.int16)
    codes = _turned(_looked_up("IQ2_XS", words & 511), _even(words >> 9 & 127))
    return Decoded(codes, _odd(blocks, _nibbles(blocks[:, 66:]), 0.125))


def iq2_s(blocks: Tensor) -> Decoded:
    indices = blocks[:, 2:34].int() | fields(blocks[:, 66:74], 1, 2).int() << 8
    codes = _turned(_looked_up("IQ2_S", indices), blocks[:, 34:66])
    return Decoded(codes, _odd(blocks, _nibbles(blocks[:, 74:]), 0.125))


def iq3_xxs(blocks: Tensor) -> Decoded:
    words = _words(blocks, 66, 98, torch.int32)
    codes = _turned(_looked_up("IQ3_XXS", blocks[:, 2:66]), _sevens(words))
    return Decoded(codes, _odd(blocks, words >> 28 & 15, 0.25))


def iq3_s(blocks: Tensor) -> Decoded:
    indices = blocks[:, 2:66].int() | fields(blocks[:, 66:74], 1, 1).int() << 8
    codes = _turned(_looked_up("IQ3_S", indices), blocks[:, 74:106])
    return Decoded(codes, _odd(blocks, _nibbles(blocks[:, 106:]), 1.0))


def _shifted(indices: Tensor, down: Tensor) -> Tensor:
    """IQ1's codes in eighths: one more than the book's, or one less where ``down`` is 1, which neighbours share."""
    codes = _looked_up("IQ1_S", indices).unflatten(1, (down.shape[1], -1))
    return (codes + (1 - 2 * down.to(torch.int8))[..., None]).flatten(1)


def iq1_s(blocks: Tensor) -> Decoded:
    words = _words(blocks, 34, 50, torch.int16)
    above = words[..., None] >> torch.arange(0, 12, 3, device=blocks.device) & 7
    indices = blocks[:, 2:34].int() | above.flatten(1) << 8
    return Decoded(_shifted(indices, words >> 15 & 1), _odd(blocks, words >> 12 & 7, 0.125))


def iq1_m(blocks: Tensor) -> Decoded:
    high = _nibbles(blocks[:, 32:48]).int()
    words = _words(blocks, 48, 56, torch.int16)
    numbers = (words[..., None] >> torch.arange(0, 12, 3, device=blocks.device) & 7).flatten(1)
    # The float16 is spread over the words' upper four bits.
    head = ((words >> 12 & 15) << torch.arange(0, 16, 4, device=blocks.device)).sum(1, dtype=torch.int32)
    scales = _odd(head.to(torch.int16)[:, None].view(torch.uint8), numbers, 0.125)
    return Decoded(_shifted(blocks[:, :32].int() | (high & 7) << 8, high >> 3), scales)
