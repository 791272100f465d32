"""The optimisations, one declarative entry each.

The panel, the command line, the wire, ``kvasir bench`` and the documentation are all built from this list. An entry
says what a switch is called, what it may be set to, when a change takes effect, how exact it is, and what must hold
for it to apply; nothing else in the program repeats any of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from engine.protocol import Exactness, OptionSpec, Value

Capability = Literal["model", "draft model", "packed weights", "native kernel"]
"""What a switch may need before it can apply."""

_MISSING: Mapping[Capability, str] = {
    "model": "Load a model first.",
    "draft model": "Needs a draft model: load one beside the model.",
    "packed weights": "This model's weights are not packed: each has 16 or 32 bits.",
    "native kernel": "Kvasir's own kernel does not serve this device: kvasir doctor says why.",
}


class OptionError(ValueError):
    """A value or a combination that the engine refuses; the message is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a choice: its key, its name in the window, and what it needs."""

    key: str
    title: str
    needs: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One optimisation switch; ``compare`` holds the two values that "measure" replays (off, on)."""

    key: str
    title: str
    group: str
    default: Value
    scope: Literal["request", "engine"]
    applies: Literal["live", "next request", "cache", "reload"]
    exactness: Exactness
    explains: str
    shows: str
    reference: str = ""
    choices: tuple[Choice, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    zero_means: str = ""
    needs: tuple[Capability, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    compare: tuple[Value, ...] = ()

    @property
    def kind(self) -> Literal["bool", "choice", "int", "float"]:
        """The shape of the value, which follows from the default."""
        if self.choices:
            return "choice"
        if isinstance(self.default, bool):
            return "bool"
        return "int" if isinstance(self.default, int) else "float"

    def parse(self, value: Value) -> Value:
        """``value`` as this option's own type. Raises :class:`OptionError` with a sentence otherwise."""
        match self.kind:
            case "bool":
                return self._parse_bool(value)
            case "choice":
                return self._parse_choice(value)
            case _:
                return self._parse_number(value)

    def _parse_bool(self, value: Value) -> bool:
        words = {
            "true": True,
            "on": True,
            "yes": True,
            "1": True,
            "false": False,
            "off": False,
            "no": False,
            "0": False,
        }
        parsed = value if isinstance(value, bool) else words.get(str(value).lower())
        if parsed is None:
            raise OptionError(f"{self.key} is a switch: set it to on or off, not {value!r}.")
        return parsed

    def _parse_choice(self, value: Value) -> str:
        keys = [choice.key for choice in self.choices]
        if value not in keys:
            raise OptionError(f"{self.key} knows no value {value!r}: choose one of {', '.join(keys)}.")
        return str(value)

    def _parse_number(self, value: Value) -> int | float:
        try:
            number = float(value)
        except ValueError:
            raise OptionError(f"{self.key} is a number: {value!r} is not.") from None
        whole = self.kind == "int"
        if isinstance(value, bool) or not number == number or (whole and not number.is_integer()):
            raise OptionError(f"{self.key} is a {'whole ' if whole else ''}number: {value!r} is not.")
        low, high = self.minimum, self.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise OptionError(f"{self.key} lies between {low:g} and {high:g}: {number:g} does not.")
        return int(number) if whole else number


@dataclass(frozen=True, slots=True)
class Conflict:
    """This option at ``value`` excludes another ``key`` at any of ``others``."""

    value: Value
    key: str
    others: tuple[Value, ...]
    reason: str


CATALOGUE: tuple[Option, ...] = (
    Option(
        key="kv_cache",
        title="KV cache",
        group="Cache",
        default=True,
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Keeps the keys and values of every token already read, so that each new token costs one row of work. "
        "Without it the whole text is computed again for every token.",
        shows="tokens per second, falling with length when off",
        compare=(False, True),
        conflicts=(
            Conflict(
                False,
                "speculation",
                ("ngram", "draft"),
                "Guessing ahead needs the KV cache: switch speculation off first.",
            ),
        ),
    ),
    Option(
        key="page_reservation",
        title="Page reservation",
        group="Cache",
        default="on_demand",
        scope="engine",
        applies="next request",
        exactness="lossless",
        explains="Hands out memory sixteen tokens at a time, as an answer grows. "
        "Reserving the whole context up front is what older servers did: most of it stays empty.",
        shows="share of the cache that holds no token",
        reference="Kwon et al. 2023, PagedAttention (arXiv 2309.06180)",
        choices=(Choice("on_demand", "on demand"), Choice("whole_context", "whole context")),
        compare=("whole_context", "on_demand"),
    ),
    Option(
        key="chunked_prefill",
        title="Chunked prefill",
        group="Scheduling",
        default=True,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Reads a long prompt in pieces, between which running answers go on. "
        "Without it everyone waits until the whole prompt has been read.",
        shows="inter-token latency of other answers while a long prompt is read",
        reference="Agrawal et al. 2024, Sarathi-Serve (arXiv 2403.02310)",
        compare=(False, True),
    ),
    Option(
        key="token_budget",
        title="Tokens per step",
        group="Scheduling",
        default=512,
        minimum=16,
        maximum=8192,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="The most tokens that one step computes, over all answers. "
        "Larger reads prompts faster; smaller keeps running answers smooth.",
        shows="time to first token against inter-token latency",
        reference="Agrawal et al. 2024, Sarathi-Serve (arXiv 2403.02310)",
        compare=(64, 512),
    ),
    Option(
        key="speculation",
        title="Speculation",
        group="Speculation",
        default="off",
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Something cheap guesses the next few tokens and the model checks them all in one pass, "
        "keeping exactly those it would have written itself. "
        "It switches itself off while guesses cost more than they save, and says so.",
        shows="tokens per step and share of guesses accepted",
        reference="Leviathan et al. 2023 (arXiv 2211.17192); Saxena 2023, prompt lookup decoding",
        choices=(
            Choice("off", "off"),
            Choice("ngram", "n-gram"),
            Choice("draft", "draft model", needs=("draft model",)),
        ),
        compare=("off", "ngram"),
    ),
    Option(
        key="draft_length",
        title="Draft length",
        group="Speculation",
        default=0,
        minimum=0,
        maximum=16,
        zero_means="automatic",
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="How many tokens are guessed ahead in each step. "
        "Automatic follows the share of guesses that was accepted and the measured cost of checking.",
        shows="accepted guesses by depth",
        reference="Leviathan et al. 2023 (arXiv 2211.17192)",
        compare=(4, 0),
    ),
    Option(
        key="weights",
        title="Weights",
        group="Weights",
        default="packed",
        scope="engine",
        applies="reload",
        exactness="lossless",
        explains="Keeps weights of 2 to 8 bits packed and unpacks them inside the multiplication, "
        "so that far fewer bytes are read for each token. "
        "16-bit holds the same weights unpacked: the same numbers, more memory.",
        shows="bytes read per token and memory of the weights",
        reference="Frantar et al. 2022, GPTQ (arXiv 2210.17323)",
        choices=(Choice("packed", "packed"), Choice("16bit", "16-bit")),
        needs=("packed weights",),
        compare=("16bit", "packed"),
    ),
    Option(
        key="packed_kernel",
        title="Packed-weight kernel",
        group="Weights",
        default="native",
        scope="engine",
        applies="reload",
        exactness="lossless",
        explains="Multiplies with packed weights in Kvasir's own code, written in C for processors and in Triton for "
        "GPUs: codes become numbers in a register, so that memory is read at nearly its full speed. "
        "PyTorch's operators do the same work where they can.",
        shows="tokens per second, and milliseconds to read a prompt",
        choices=(Choice("native", "Kvasir's"), Choice("torch", "PyTorch's")),
        needs=("packed weights", "native kernel"),
        compare=("torch", "native"),
    ),
    Option(
        key="batch_invariant",
        title="Batch-invariant arithmetic",
        group="Numerics",
        default=False,
        scope="engine",
        applies="live",
        exactness="lossless",
        explains="Computes every row in the same order whatever else is in the batch, "
        "so that equal settings give equal text to the last token. "
        "It is slower; it is how lossless switches are proved to change nothing.",
        shows="tokens per second; first differing token in a comparison",
        reference="He et al. 2025, Defeating nondeterminism in LLM inference",
        compare=(True, False),
    ),
)

BY_KEY: Mapping[str, Option] = {option.key: option for option in CATALOGUE}


def option(key: str) -> Option:
    """The entry called ``key``. Raises :class:`OptionError` naming the known ones."""
    try:
        return BY_KEY[key]
    except KeyError:
        raise OptionError(f"There is no optimisation called {key!r}: the known ones are {', '.join(BY_KEY)}.") from None


def defaults() -> dict[str, Value]:
    """Every key with its default value."""
    return {entry.key: entry.default for entry in CATALOGUE}


def validated(
    changes: Mapping[str, Value], current: Mapping[str, Value], capabilities: Collection[Capability]
) -> dict[str, Value]:
    """``current`` with ``changes`` applied, every value of its own type.

    Raises :class:`OptionError` with one sentence when a key is unknown, a value does not fit, a capability is missing,
    or two values exclude each other. A value equal to the present one is never refused.
    """
    values = dict(current)
    for key, raw in changes.items():
        entry = option(key)
        value = entry.parse(raw)
        if value != values[key]:
            reason = _unavailable(entry, value, capabilities)
            if reason:
                raise OptionError(reason)
        values[key] = value
    reason = conflict(values)
    if reason:
        raise OptionError(reason)
    return values


def conflict(values: Mapping[str, Value]) -> str:
    """Why the values exclude each other, or an empty string."""
    for entry in CATALOGUE:
        for rule in entry.conflicts:
            if values[entry.key] == rule.value and values[rule.key] in rule.others:
                return rule.reason
    return ""


def state(values: Mapping[str, Value], capabilities: Collection[Capability]) -> list[OptionSpec]:
    """The catalogue as it stands: every entry with its value and why it, or a choice of it, cannot apply now."""
    return [_spec(entry, values, capabilities) for entry in CATALOGUE]


def _spec(entry: Option, values: Mapping[str, Value], capabilities: Collection[Capability]) -> OptionSpec:
    disabled = {
        choice.key: reason for choice in entry.choices if (reason := _why_not(entry, choice.key, values, capabilities))
    }
    compare = [value for value in entry.compare if value not in disabled]
    reason = _missing(entry.needs, capabilities)
    if entry.kind == "bool":
        reason = reason or _why_not(entry, not values[entry.key], values, capabilities)
    return OptionSpec(
        key=entry.key,
        title=entry.title,
        group=entry.group,
        kind=entry.kind,
        default=entry.default,
        value=values[entry.key],
        scope=entry.scope,
        applies=entry.applies,
        exactness=entry.exactness,
        explains=entry.explains,
        shows=entry.shows,
        reference=entry.reference,
        choices=[choice.key for choice in entry.choices],
        choice_titles=[choice.title for choice in entry.choices],
        minimum=entry.minimum,
        maximum=entry.maximum,
        zero_means=entry.zero_means,
        disabled_reason=reason,
        disabled_choices=disabled,
        compare=compare if len(compare) == 2 else [],
    )


def _why_not(entry: Option, value: Value, values: Mapping[str, Value], capabilities: Collection[Capability]) -> str:
    """Why ``entry`` cannot be set to ``value`` beside the other present values, or an empty string."""
    return _unavailable(entry, value, capabilities) or conflict({**values, entry.key: value})


def _unavailable(entry: Option, value: Value, capabilities: Collection[Capability]) -> str:
    needs: Iterable[Capability] = entry.needs
    for choice in entry.choices:
        if choice.key == value:
            needs = (*entry.needs, *choice.needs)
    return _missing(needs, capabilities)


def _missing(needs: Iterable[Capability], capabilities: Collection[Capability]) -> str:
    return next((_MISSING[need] for need in needs if need not in capabilities), "")
