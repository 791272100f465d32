"""Reasons that answers are slow: sentences from what is known of the engine and the machine, each with its remedy.

A rule looks at facts and finds a reason or none. How many times faster answers would be with it mended is estimated
from the facts where they say it, else taken from docs/measurements.md: rough, and good enough to sort by.
"""

from __future__ import annotations

import math

from engine.base.sizes import figure, human
from engine.decoding.scheduling.service import TARGET_KEYS
from engine.decoding.telemetry.why.facts import Facts, Rule, WhyReason
from engine.decoding.telemetry.why.slow_values import SLOW_VALUES, rule_of
from engine.protocol import Acceptance, Reason, Value, keys

REFUSED = 0.6
"""Share of draft tokens thrown away from which drafts are named."""
LEAST_DRAFTS = 32
"""Draft tokens in the last seconds below which their share says little."""
LEAST_TOKENS = 64
"""Tokens of a prompt that are worth a word where they were computed again."""
WARM_STEPS = 32
"""Steps of a model after which kernels are chosen and buffers are there."""
SLACK_CORES = 0.5
"""Cores that other programs may take before they are named."""
HELD_BYTES = 1 << 30
"""Bytes of a GPU's memory held by other programs from which they are worth a word."""
FULL = 0.95
"""Share of the pages in use by answers from which the cache is full."""


def reasons(facts: Facts) -> list[Reason]:
    """All that rules find, those first whose mending is likely to gain most."""
    found = [found for rule in RULES if (found := rule(facts)) is not None]
    return [each.reason for each in sorted(found, key=lambda each: -each.gain)]


def limit(facts: Facts) -> str:
    """Sentence on the tokens a second that all answers together could reach at most, by memory alone, and on what they
    reached in the last seconds; "" where it is unknown."""
    frame, once = facts.frame, facts.frame.bytes_per_pass or facts.weights
    if once and not facts.gpu and once < facts.machine.cache:
        return (
            f"The {human(int(once))} that a pass reads fit into the processor's cache, so memory sets no limit here: "
            "arithmetic and the program's own work do."
        )
    read = frame.bytes_per_token or float(facts.weights)
    drafted = frame.bytes_per_token is not None and any(one.proposed for one in frame.acceptance)
    drafts = "at the present acceptance of drafts" if drafted else "without drafts"
    if not facts.bandwidth or not read:
        return ""
    sentence = (
        f"A token reads {human(int(read))}, and this memory gives {human(int(facts.bandwidth))} a second: with these "
        f"settings, {drafts}, no more than {figure(facts.bandwidth / read)} tokens a second are possible"
    )
    if frame.bandwidth_share is None:
        return f"{sentence}."
    return f"{sentence}, and the last seconds reached {100 * frame.bandwidth_share:.0f} % of that."


# --- rules ---------------------------------------------------------------------------------------------------------


def swapped_out(facts: Facts) -> WhyReason | None:
    """A part of the engine lies on the disk."""
    machine = facts.machine
    if machine.swapped < max(1, facts.weights) // 20 or machine.swapped < 50_000_000:
        return None
    sentence = f"{human(machine.swapped)} of the engine's memory lie on the disk, because the machine's own was full."
    action = "Close other programs, or load a smaller model or a shorter context."
    return WhyReason(20.0, Reason(sentence=sentence, action=action, place="models"))


def memory_short(facts: Facts) -> WhyReason | None:
    """The next allocation of anybody may swap."""
    machine = facts.machine
    if not machine.total or machine.free >= 0.03 * machine.total:
        return None
    sentence = f"Only {human(machine.free)} of the machine's {human(machine.total)} of memory are free."
    action = "Close other programs, or load a smaller model or a shorter context."
    return WhyReason(1.5, Reason(sentence=sentence, action=action, place="models"))


def without_gpu(facts: Facts) -> WhyReason | None:
    if facts.gpu or not facts.machine.no_gpu:
        return None
    sentence = f"The processor computes, although a GPU pack is installed. {facts.machine.no_gpu}"
    return WhyReason(10.0, Reason(sentence=sentence, action="Test the GPU pack in Settings.", place="settings"))


def fell_back(facts: Facts) -> WhyReason | None:
    """Layers whose fast kernel declined."""
    if not facts.card.fallbacks:
        return None
    first, *others = facts.card.fallbacks
    return WhyReason(
        3.0,
        Reason(
            sentence=first,
            detail=" ".join(others),
            action="Run `kvasir doctor` in a terminal, which says what is missing, or choose another format.",
            place="models",
        ),
    )


def busy_processor(facts: Facts) -> WhyReason | None:
    """A thread that waits for its core holds up the others."""
    machine = facts.machine
    if facts.gpu or machine.others < SLACK_CORES or machine.others + machine.threads <= machine.cores + SLACK_CORES:
        return None
    left = max(0.5, machine.cores - machine.others)
    sentence = (
        f"Other programs keep {machine.others:.1f} of this computer's {machine.cores} cores busy, leaving little for "
        "Kvasir."
    )
    action = "Close the programs that compute, or wait for them."
    return WhyReason(min(machine.threads, machine.cores) / left, Reason(sentence=sentence, action=action))


def few_threads(facts: Facts) -> WhyReason | None:
    """One core is left to the window on purpose."""
    machine = facts.machine
    if facts.gpu or not machine.threads or machine.threads + 1 >= machine.cores:
        return None
    sentence = f"The engine computes with {machine.threads} of this computer's {machine.cores} cores."
    action = "Start Kvasir without the variable OMP_NUM_THREADS, or with a larger number in it."
    return WhyReason(machine.cores / machine.threads, Reason(sentence=sentence, action=action))


def refused_drafts(facts: Facts) -> WhyReason | None:
    """Drafts of a length that the person set are made whether they pay or not; automatic ones rest by themselves."""
    drafted = [one for one in facts.frame.acceptance if one.proposed >= LEAST_DRAFTS and not one.off_reason]
    fixed: dict[str, Value] = {key: 0 for key in (keys.DRAFT_LENGTH, keys.TREE_NODES) if facts.value(key)}
    worst = max(drafted, key=_thrown_away, default=None)
    if worst is None or not fixed or (share := _thrown_away(worst)) < REFUSED:
        return None
    names = facts.switches[keys.SPECULATION].titles
    times = f"{'three' if share < 0.7 else 'four'} times in five"
    if share > 0.9:
        times = f"more than {times}" if share < 1 else "every time"
    reason = Reason(
        sentence=f"Drafts by {names.get(worst.proposer, worst.proposer)} are refused {times}, and go on, because their "
        "length is fixed.",
        detail="Automatic lengths follow what is accepted, and rest where drafts cost more than they save.",
        keys={**fixed, **({keys.SPECULATION: "auto"} if facts.can(keys.SPECULATION, "auto") else {})},
    )
    return WhyReason(1.6, reason)


def _thrown_away(one: Acceptance) -> float:
    """The share of a draft's depth that was not accepted; of a tree one path can be."""
    if one.tree_nodes > one.draft_length > 0:
        return 1 - (one.tokens_per_step - 1) / one.draft_length
    return 1 - one.accepted / one.proposed if one.proposed else 0.0


def no_drafts(facts: Facts) -> WhyReason | None:
    """One answer at a time leaves arithmetic idle, with which drafts could be checked."""
    if facts.value(keys.SPECULATION) != "off" or not facts.can(keys.SPECULATION, "auto"):
        return None
    if facts.frame.queue.running > 1:
        return None
    reason = Reason(
        sentence="Speculation is off, so every token takes a pass over all weights of its own.",
        detail="Auto drafts where that was measured to pay, and the text stays the same.",
        keys={keys.SPECULATION: "auto"},
    )
    return WhyReason(1.3, reason)


def sixteen_bits(facts: Facts) -> WhyReason | None:
    """Decoding waits for bytes, of which a model in 4 bits has a quarter."""
    if not facts.dense or facts.cached:
        return None
    sentence = f"The model's weights are in 16 bits or more: {human(facts.weights)} are read for each token."
    return WhyReason(
        2.5,
        Reason(
            sentence=sentence,
            detail="In 4 bits that is about a quarter. The text changes a little.",
            action='Set "Quantise 16-bit models on load" in Settings, or choose a quantised file of the model.',
            place="settings",
        ),
    )


def in_float32(facts: Facts) -> WhyReason | None:
    if not facts.float32:
        return None
    sentence = "The model was told to compute in float32, which moves twice the bytes of 16 bits."
    return WhyReason(2.0, Reason(sentence=sentence, action="Load it without --dtype float32."))


def wide_head(facts: Facts) -> WhyReason | None:
    """The output head is read whole for each token."""
    if facts.cached or not facts.head or facts.head < facts.weights / 4 or not facts.can(keys.OUTPUT_HEAD, "int8"):
        return None
    share = facts.head / facts.weights
    reason = Reason(
        sentence=f"The output head is not quantised: it is {100 * share:.0f} % of the weights that a token reads.",
        detail="In 8 bits half of them are read, and the text may differ. The model is loaded again.",
        keys={keys.OUTPUT_HEAD: "int8"},
    )
    return WhyReason(1 / (1 - share / 2), reason)


def long_text(facts: Facts) -> WhyReason | None:
    """Keys and values of one long text are most of what a pass reads, whether it verifies drafts or not."""
    frame = facts.frame
    if frame.bytes_per_pass is None or frame.queue.running > 1 or not facts.weights:
        return None
    kept = frame.bytes_per_pass - facts.weights
    if kept < facts.weights:
        return None
    read = human(int(frame.bytes_per_pass))
    sentence = f"The text is long: its keys and values are {human(int(kept))} of the {read} that a pass reads."
    if facts.value(keys.KV_KIND) == "16bit" and facts.can(keys.KV_KIND, "int8"):
        detail = "In 8 bits they are about half. The text may change a little, and running answers end."
        reason = Reason(sentence=sentence, detail=detail, keys={keys.KV_KIND: "int8"})
    else:
        quest = ", or choose QUEST under Attention" if facts.can(keys.PAGE_POLICY, "quest") else ""
        reason = Reason(sentence=sentence, action=f"Begin a new chat{quest}.")
    return WhyReason(frame.bytes_per_pass / (facts.weights + kept / 2), reason)


def cache_full(facts: Facts) -> WhyReason | None:
    """Answers give way to each other, or wait until others end."""
    frame = facts.frame
    pages, waiting = frame.pages, frame.queue.waiting
    full = pages.total and pages.used - pages.cached >= FULL * pages.total
    if not frame.preemptions and not (waiting and full):
        return None
    if frame.preemptions:
        count = frame.preemptions
        paused = "One answer was" if count == 1 else f"{count} answers were"
        sentence = f"{paused} paused in the last seconds, because the memory for keys and values is full."
    else:
        wait = "request waits" if waiting == 1 else "requests wait"
        sentence = f"{waiting} {wait} until there are free pages for keys and values."
    if facts.value(keys.PAGE_RESERVATION) == "whole_context":
        return WhyReason(3.0, Reason(sentence=sentence, keys={keys.PAGE_RESERVATION: "on_demand"}))
    if facts.value(keys.KV_KIND) == "16bit" and facts.can(keys.KV_KIND, "int8"):
        detail = "In 8 bits about twice as much text fits. It may change a little, and running answers end."
        return WhyReason(2.0, Reason(sentence=sentence, detail=detail, keys={keys.KV_KIND: "int8"}))
    return WhyReason(
        2.0, Reason(sentence=sentence, action="Ask less at once, or give the model more memory in Settings.")
    )


def left_its_cache(facts: Facts) -> WhyReason | None:
    """The last prompt did not begin with the conversation before it."""
    prompt = facts.prompt
    if prompt is None or prompt.diverged is None:
        return None
    again = min(prompt.before, prompt.tokens) - max(prompt.diverged, prompt.cached)
    if again < LEAST_TOKENS:
        return None
    return WhyReason(
        1.4,
        Reason(
            sentence=f"The last prompt left its cache at token {prompt.diverged + 1:,} of {prompt.tokens:,}, so that "
            f"about {again:,} were computed again.",
            detail=prompt.divergence,
            action="Go on at the end of a chat: what is changed before it is computed again.",
        ),
    )


def small_chunks(facts: Facts) -> WhyReason | None:
    budget = facts.value(keys.TOKEN_BUDGET)
    spec = facts.switches.get(keys.TOKEN_BUDGET)
    if spec is None or not isinstance(budget, int) or budget > int(spec.default) // 4:
        return None
    sentence = f"Prompts are computed at most {budget} tokens at a time, which makes the first word late."
    return WhyReason(1.2, Reason(sentence=sentence, keys={keys.TOKEN_BUDGET: spec.default}))


def not_captured(facts: Facts) -> WhyReason | None:
    """Steps that were not captured although capturing is on."""
    frame = facts.frame
    if frame.captured is None or frame.captured > 0.5 or not facts.value(keys.CUDA_GRAPHS):
        return None
    sentence = (
        f"{100 * (1 - frame.captured):.0f} % of the steps went through the model call by call: {frame.eager_reason}."
    )
    return WhyReason(1.5, Reason(sentence=sentence, detail="A captured step is repeated by one call."))


def throttled(facts: Facts) -> WhyReason | None:
    if not facts.machine.throttled:
        return None
    sentence = f"The GPU runs below its clock, because of {facts.machine.throttled}."
    return WhyReason(
        1.4 if "temperature" in facts.machine.throttled else 1.1,
        Reason(sentence=sentence, action="Let it cool down, or raise its power limit."),
    )


def on_battery(facts: Facts) -> WhyReason | None:
    if not facts.machine.battery:
        return None
    reason = Reason(
        sentence="This computer runs on its battery, and most then run slower.", action="Connect it to its charger."
    )
    return WhyReason(1.2, reason)


def held_gpu_memory(facts: Facts) -> WhyReason | None:
    """Memory that others hold is missing for keys and values, and a program that holds some often computes, too."""
    memory = facts.frame.memory
    if not facts.gpu or memory.scope != "device" or memory.other_programs < HELD_BYTES:
        return None
    held = facts.machine.held
    if held and held[0][1] >= HELD_BYTES:
        sentence = f"{held[0][0]} holds {human(held[0][1])} of the GPU's memory."
    else:
        sentence = f"Other programs hold {human(memory.other_programs)} of the GPU's memory."
    return WhyReason(1.1, Reason(sentence=sentence, action="Close it, then load the model again to use that memory."))


def just_loaded(facts: Facts) -> WhyReason | None:
    if facts.steps >= WARM_STEPS:
        return None
    what = "kernels are compiled and graphs captured" if facts.gpu else "kernels are chosen and memory is first used"
    return WhyReason(1.05, Reason(sentence=f"The model has just been loaded: {what} during its first steps."))


def late_answers(facts: Facts) -> WhyReason | None:
    """Answers of the last minute missed the targets of their service class."""
    frame = facts.frame
    late = [each for each in frame.services if each.in_time < each.ended]
    if not late:
        return None
    worst = min(late, key=lambda each: each.in_time / each.ended)
    sentence = f"{worst.ended - worst.in_time} of {worst.ended} {worst.service} answers of the last minute were late."
    targets = f"They may wait {figure(worst.first_token)} s for the first token and "
    targets += f"{1e3 * worst.between_tokens:,.0f} ms between tokens."
    _, between = TARGET_KEYS[worst.service]
    if worst.most == 0 and frame.latency.itl_p95_ms is not None and between in facts.switches:
        detail = f"{targets} No step of this model is as short on this computer."
        return WhyReason(
            1.05, Reason(sentence=sentence, detail=detail, keys={between: math.ceil(frame.latency.itl_p95_ms)})
        )
    if worst.most and worst.most < frame.queue.running:
        at_once = "one answer" if worst.most == 1 else f"{worst.most} answers"
        detail = f"{targets} That can be kept with {at_once} at once; the others wait."
        return WhyReason(1.1, Reason(sentence=sentence, detail=detail, keys={keys.MAX_BATCH: worst.most}))
    if len(frame.services) > 1 and facts.value(keys.ADMISSION) == "first_come":
        detail = f"{targets} With service classes the more urgent go first."
        return WhyReason(1.1, Reason(sentence=sentence, detail=detail, keys={keys.ADMISSION: "classes"}))
    return WhyReason(1.1, Reason(sentence=sentence, detail=targets, action="Ask less at once, or allow more time."))


def many_answers(facts: Facts) -> WhyReason | None:
    frame = facts.frame
    if frame.queue.running < 2:
        return None
    each = frame.generated_per_second / frame.queue.running
    sentence = (
        f"{frame.queue.running} answers are written at once: {figure(frame.generated_per_second)} tokens a second "
        f"together, {figure(each)} for each."
    )
    return WhyReason(1.0, Reason(sentence=sentence, detail="Together they take less time than one after the other."))


RULES: tuple[Rule, ...] = (
    *map(rule_of, SLOW_VALUES),
    swapped_out,
    without_gpu,
    fell_back,
    busy_processor,
    few_threads,
    sixteen_bits,
    in_float32,
    cache_full,
    long_text,
    refused_drafts,
    wide_head,
    memory_short,
    not_captured,
    throttled,
    left_its_cache,
    no_drafts,
    small_chunks,
    on_battery,
    held_gpu_memory,
    just_loaded,
    late_answers,
    many_answers,
)
