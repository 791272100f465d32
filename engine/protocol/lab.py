"""The Lab: its experiments, a run's pictures, its result; `kvasir lab … --json` prints them, an object a line."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.protocol.base import DeviceName, Message, Part, Quantise, Value
from engine.protocol.from_engine import Effect
from engine.protocol.records import LoadOptions
from engine.protocol.remotes import RemoteModel

LabGroup = Literal["The basics", "Memory", "Sharing", "Speculation"]
Doing = Literal["waiting", "reading", "writing", "idle", "paused", "preempted", "swapped"]
Fate = Literal["own", "accepted", "refused"]


class Axis(Part, frozen=True):
    """``log``: logarithmic."""

    title: str
    unit: str = ""
    log: bool = False


class Series(Part, frozen=True):
    """Points in the order in which they are joined. ``low`` and ``high``, if any, are the interval around each y."""

    name: str
    points: list[tuple[float, float]]
    low: list[float] = []
    high: list[float] = []


class Plot(Part, frozen=True):
    """``bars``: a bar for each point, whose names are ``categories``, instead of a line."""

    title: str
    x: Axis
    y: Axis
    series: list[Series]
    bars: bool = False
    categories: list[str] = []
    note: str = ""
    """A line below: the setting."""


class PaperFigure(Part, frozen=True):
    """A figure or headline of a paper, redrawn from its numbers. ``place``: where in the paper they stand, which is
    shown; ``checked``: where each number was read, which is not."""

    name: str
    paper: str
    """Authors and year, as "Kwon et al. 2023"."""
    title: str
    """Title of the paper."""
    address: str
    figure: str
    """"Table 3", "Figure 12"."""
    claim: str
    """Claim of the paper, in one sentence with its number."""
    setting: str
    """Models, hardware and workload it was measured with."""
    checked: str
    place: str = ""
    plot: Plot | None = None


class Cells(msgspec.Struct, tag_field="kind", tag="cells", kw_only=True, omit_defaults=True, frozen=True):
    """Step by step, how many tokens were computed, and how many were there: a triangle, or one cell a row."""

    computed: list[int]
    present: list[int]


class Pages(msgspec.Struct, tag_field="kind", tag="pages", kw_only=True, omit_defaults=True, frozen=True):
    """The page pool: for each page whose it is, -1 for a free one. ``filled``: the share of its slots that is used."""

    owners: list[int]
    filled: list[float]
    names: list[str] = []


class LabTreeNode(Part, frozen=True):
    """``parent``: the place of its parent in the list, -1 for a root. ``readers``: chats whose text goes through it."""

    parent: int
    tokens: int
    readers: list[int]


class Tree(msgspec.Struct, tag_field="kind", tag="tree", kw_only=True, omit_defaults=True, frozen=True):
    """A prefix tree, parents before children."""

    nodes: list[LabTreeNode]


class Span(Part, frozen=True):
    """Interval from ``start`` to ``end``, in seconds of the run."""

    start: float
    end: float
    doing: Doing


class Lane(Part, frozen=True):
    name: str
    spans: list[Span]


class Lanes(msgspec.Struct, tag_field="kind", tag="lanes", kw_only=True, omit_defaults=True, frozen=True):
    """A row for each request. ``seconds``: the length of the axis."""

    lanes: list[Lane]
    seconds: float


class DraftToken(Part, frozen=True):
    """``parent``: the place of the token before it in the step, -1 for one that follows the text."""

    text: str
    fate: Fate
    parent: int = -1


class Drafts(msgspec.Struct, tag_field="kind", tag="drafts", kw_only=True, omit_defaults=True, frozen=True):
    """Step by step: what was drafted, and what became of it; a step's own token is its last."""

    steps: list[list[DraftToken]]


class Heat(msgspec.Struct, tag_field="kind", tag="heat", kw_only=True, omit_defaults=True, frozen=True):
    """``values`` row by row, each from 0 to 1."""

    columns: int
    values: list[float]
    across: str
    down: str


class Strip(msgspec.Struct, tag_field="kind", tag="strip", kw_only=True, omit_defaults=True, frozen=True):
    """The pages of one text in their order: how much of each was read, 0 to 1, and which hold what is looked for."""

    read: list[float]
    marked: list[int] = []


class Amounts(msgspec.Struct, tag_field="kind", tag="amounts", kw_only=True, omit_defaults=True, frozen=True):
    """Named amounts of bytes, beside a ``limit`` (0: none)."""

    names: list[str]
    amounts: list[float]
    limit: float = 0.0


Picture = Cells | Pages | Tree | Lanes | Drafts | Heat | Strip | Amounts


class LabSetting(Part, frozen=True):
    """A whole number of an experiment that can be chosen, from ``least`` to ``most`` in steps of ``step``."""

    key: str
    title: str
    least: int
    most: int
    step: int
    usual: int

    @property
    def range(self) -> str:
        """Text of the range: "from 200 to 8,000 in steps of 200"."""
        steps = f" in steps of {self.step:,}" if self.step > 1 else ""
        return f"from {self.least:,} to {self.most:,}{steps}"


class LabPage(Part, frozen=True):
    """Description of an experiment, known before it runs. ``keys``: the switches that it shows."""

    name: str
    number: int
    title: str
    group: LabGroup
    keys: list[str]
    problem: str
    """Two sentences: what the technique is for, and what it does."""
    question: str
    """Figure to predict; the answer is one of ``choices``, the first of ``bounds`` that the headline stays below."""
    choices: list[str]
    bounds: list[float]
    """Upper bounds of all choices but the last."""
    lesson: str
    """The sentence that it is to teach."""
    fails: str
    """Cases in which it does not help."""
    sides: list[str]
    """Names of what is compared, in order: the first is the one without the technique."""
    seconds: int
    """About how long it takes, in all, with the bundled model."""
    use: dict[str, Value] = {}
    """Values that "use it in my chats" sets."""
    papers: list[PaperFigure] = []
    refused: str = ""
    """Reason that the model cannot show it; a sentence."""
    instead: str = ""
    """Alternative that can, as a sentence."""
    brings: str = ""
    """Name of a bundled model that can show it, where the bundled guide cannot."""
    adjustable: list[LabSetting] = []


class LabIndex(Message, frozen=True):
    """`kvasir lab --json`."""

    model: str
    device: str
    pages: list[LabPage]


class LabProgress(Message, frozen=True):
    """``side``: the place of the one that runs, -1 where none does, among the page's sides or those that were told last
    with ``sides``, where a run has others. ``done`` of ``total`` is how far it is; ``run`` counts runs from 1, 0 for
    something else."""

    name: str
    done: int
    total: int
    run: int = 0
    side: int = -1
    sentence: str = ""
    sides: list[str] = []


class LabPicture(Message, frozen=True):
    """Picture of a side's state now."""

    name: str
    side: int
    picture: Picture


class LabFigure(Part, frozen=True):
    """One figure of all sides: the single runs, in the order in which they were taken, and each side against the first.

    ``effects[i]`` compares side i + 1. A side without runs has no value, and an effect of no pairs. ``remarks``: a
    sentence on each side's value, or on why it has none, "" for nothing; empty where no side has one.
    """

    effects: list[Effect]
    runs: list[list[float]]
    remarks: list[str] = []

    def remark(self, side: int) -> str:
        """The sentence on a side; "" for none."""
        return self.remarks[side] if self.remarks else ""

    @property
    def medians(self) -> list[float]:
        """Medians of all sides; there must be effects."""
        return [self.effects[0].before, *(effect.after for effect in self.effects)]


class LabText(Part, frozen=True):
    """Comparison of all sides' texts. ``at``: the first token that differs; ``near_tie``: both scores were within 1e-4
    of each other there. ``texts``: one of each side."""

    same: bool
    tokens: int
    sentence: str
    at: int = -1
    near_tie: bool = False
    texts: list[str] = []


class LabResult(Message, frozen=True):
    """A run, as it is kept and shown. ``figures[0]`` is the headline, ``figures[asked]`` what the question is about."""

    name: str
    model: str
    device: str
    machine: str
    version: str
    date: str
    seed: int
    settings: dict[str, Value]
    """Inputs of the experiment: lengths, numbers of answers."""
    headline: str
    """The counted result, which has no noise; in older results the timed one."""
    sides: list[str]
    """Sides that ran: the page's, without those that the model lacks."""
    figures: list[LabFigure]
    text: LabText | None
    taken: str
    """Description of how the numbers were taken."""
    same: list[str]
    """Conditions that were as in the paper."""
    other: list[str]
    """Conditions that were not."""
    why: list[str]
    """Reasons that the paper's figure is larger or smaller, from what was measured."""
    lesson: str
    pictures: list[Picture] = []
    """The last of each side."""
    plots: list[Plot] = []
    told_of: int = -1
    """The place in a figure's effects of the one that the headline tells of, and the prediction is about."""
    chosen: dict[str, int] = {}
    """Settings that were other than usual: the prediction is not about this, and no other result is like it."""
    asked: int = 0
    second: str = ""
    """Below the headline: what has noise, with its median and range."""
    others: float | None = None
    """The share (0..1) of the processor that other programs took while runs were timed; None: nothing was timed."""

    @property
    def answer(self) -> Effect | None:
        """The effect that the prediction is about; None where there are none."""
        effects = self.figures[self.asked].effects if self.asked < len(self.figures) else []
        return effects[self.told_of] if effects else None

    def cut(self, key: str) -> str:
        """Text after a number of ``chosen``: the one that was used, where the model or its memory allowed less."""
        used = self.settings.get(key)
        return f" (cut to {used:,})" if isinstance(used, int) and used != self.chosen[key] else ""


class Column(Part, frozen=True):
    """Definition of one column of a comparison: ``model`` "" is that of the first column; ``draft`` None its own.

    With ``remote`` a model of another server answers, which nothing else is said of; never in the first column.
    """

    name: str
    model: str = ""
    draft: str | None = None
    quantise: Quantise = "none"
    set: dict[str, Value] = {}
    remote: RemoteModel | None = None


class ColumnQuality(Part, frozen=True):
    """Quality on the user's text, against the first column: perplexities of both, mean KL of the next token's
    distribution in nats, and the share of positions at which both think the same token the likeliest."""

    first: float
    perplexity: float
    kl: float
    same_top: float
    tokens: int


class KindFigures(Part, frozen=True):
    """Figures on one kind of text. ``texts[prompt][column - 1]``: what the columns after the first wrote."""

    kind: str
    prompts: list[str]
    figures: list[LabFigure]
    texts: list[list[LabText]]


class LabCompared(Message, frozen=True):
    """A comparison of columns, as it is kept and read again."""

    columns: list[Column]
    models: list[str]
    device: str
    machine: str
    version: str
    date: str
    seed: int
    kinds: list[KindFigures]
    quality: list[ColumnQuality | None]
    """Quality of each column after the first; None where it could not be measured, and why stands in ``absent``."""
    lossless: list[bool]
    """True for each column after the first that promises the first one's text."""
    taken: str
    absent: list[str] = []


class Ceiling(Part, frozen=True):
    """Ceiling of this machine: at most ``value`` in ``unit`` a second, and how that was measured.

    ``raised`` says which pass was faster than what was measured, "" for none; ``value`` is then that pass's.
    """

    name: str
    value: float
    unit: Literal["bytes", "operations"]
    taken: str
    raised: str = ""


PointGroup = Literal["measured", "batch", "drafts", "switch"]


class RoofPoint(Part, frozen=True):
    """Point in the roofline plot. ``tokens`` and ``operations`` are a second's, of all answers together.

    ``intensity`` is operations a byte read. In the group "measured" ``low`` to ``high`` are operations a second from
    the slower quarter of its passes to the fastest. The others are computed from bytes and operations and stand on the
    roof, as no more is possible: "batch", several answers at once; "drafts", draft tokens checked in one pass;
    "switch", one answer with the switches ``keys`` set.
    """

    name: str
    group: PointGroup
    intensity: float
    operations: float
    low: float
    high: float
    tokens: float
    setting: str
    """Description of how it was taken."""
    roof: float
    """Operations a second that the ceilings allow at this intensity."""
    keys: dict[str, Value] = {}


class LabRoofline(Message, frozen=True):
    """`kvasir lab roofline`: what limits the loaded model, as it is set, on this machine.

    Of one token of one answer at ``context``: ``weights`` and ``kept`` (keys, values, states) are bytes read.
    """

    model: str
    device: str
    machine: str
    version: str
    date: str
    context: int
    weights: float
    kept: float
    operations: float
    limit: float
    """Tokens a second that one answer cannot pass with these settings."""
    memory: Ceiling
    """The one that holds here: of the processor's cache, where that holds half or more of what a token reads."""
    arithmetic: Ceiling
    """The one that holds here: of packed products, where these take longer than the others."""
    ceilings: list[Ceiling]
    points: list[RoofPoint]
    sentences: list[str]


LabLine = LabIndex | LabProgress | LabPicture | LabResult | LabCompared | LabRoofline
LabEvent = LabProgress | LabPicture
SECONDS = 40.0
"""After these no further pair of runs begins, if eight are there."""


class ListExperiments(Part, frozen=True):
    """The Lab's experiments, and the newest result of each with its usual settings. ``device``: of the bundled model,
    for which it is said what it cannot show."""

    device: DeviceName = "auto"


class RunExperiment(Part, frozen=True):
    """Run an experiment, or the roofline, and keep the result.

    ``model``: a name or a path, "" for the bundled one; ``draft``: "" for none, None for what the model brings.
    ``pairs``: pairs of runs, 0 for as many as a verdict takes; ``seconds`` as of `kvasir lab`. ``chosen``: settings.
    """

    name: str
    model: str = ""
    draft: str | None = None
    options: LoadOptions = LoadOptions()
    chosen: dict[str, int] = {}
    seed: int = 1
    pairs: int = 0
    seconds: float = SECONDS


class LabOutcome(Part, frozen=True):
    """Outcome of a run. ``warning``: what went wrong all the same, as a sentence, "" for nothing."""

    found: LabResult | LabRoofline
    warning: str = ""


class CompareColumns(Part, frozen=True):
    """Compare settings, models and quantisations on the same prompts.

    ``prompts``: those of a chat; ``prompts_file`` and ``text_file`` are paths of files as `kvasir compare` takes them,
    "" for none. Without prompts the built-in ones are taken. ``pairs`` 0: as many rounds as a verdict takes.
    """

    columns: list[Column]
    prompts: list[str] = []
    prompts_file: str = ""
    text_file: str = ""
    tokens: int = 64
    pairs: int = 0
    device: DeviceName = "auto"


class LabComparison(Part, frozen=True):
    """``report``: the comparison as an HTML file."""

    found: LabCompared
    report: str
