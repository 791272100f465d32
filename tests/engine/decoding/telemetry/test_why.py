"""Why answers are slow: each rule with made facts, their order, and a real engine that is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.sync.client import connect

from engine import catalogue
from engine import protocol as p
from engine.catalogue.metrics import SPEED
from engine.decoding.telemetry.processor import RecentPrograms
from engine.decoding.telemetry.why.facts import Facts, LastPrompt, Machine
from engine.decoding.telemetry.why.made_of import made_of
from engine.decoding.telemetry.why.rules import limit, reasons
from engine.decoding.telemetry.why.slow_values import SLOW_VALUES
from engine.decoding.telemetry.window import TelemetryWindow
from engine.doors.serve import Server, open_socket
from engine.library import paths
from engine.loading.memory import nvml
from engine.loop.engine import Engine
from engine.protocol import (
    Acceptance,
    Latencies,
    ModelCard,
    PageCounts,
    QueueCounts,
    Reason,
    Sampling,
    ServiceFigures,
    Telemetry,
    Value,
    keys,
)
from engine.services.probes import MachineProbes
from tests.engine.decoding.telemetry.steps import MEMORY, frame, running, step
from tests.kit.servers import TOKEN, Client

GB = 10**9
CARD = ModelCard(
    name="m", path="/m", architecture="LlamaForCausalLM", parameters=8 * GB, quantisation="GPTQ 4-bit", context=4096,
    vocabulary=1000, eos_ids=[], has_chat_template=True, sampling=Sampling(),
)  # fmt: skip
CAN: set[catalogue.Capability] = {
    "model", "packed weights", "native kernel", "dense head", "quantised activations", "graphs", "async steps",
    "packed cache", "draft model",
}  # fmt: skip
QUIET = Machine(cores=8, threads=7, free=8 * GB, total=16 * GB, cache=32 << 20)


def facts(switches: dict[str, Value] | None = None, **changes: object) -> Facts:
    """A quiet machine with nothing to complain about, but for these changes."""
    values = {**catalogue.defaults(), **(switches or {})}
    fields: dict[str, object] = {
        "card": CARD,
        "switches": {spec.key: spec for spec in catalogue.state(values, CAN)},
        "frame": telemetry(),
        "machine": QUIET,
        "weights": 4 * GB,
        "bandwidth": 20.0 * GB,
    }
    return Facts(**{**fields, **changes})  # type: ignore[arg-type]


def telemetry(**changes: object) -> Telemetry:
    pages = PageCounts(total=100, used=50, live_tokens=700, cached=10)
    quiet = frame(step(1.0, queue=running(1)), now=1.1)
    return msgspec.structs.replace(quiet, **{"pages": pages, **changes})


def only(found: Facts) -> Reason:
    """The one reason that these facts are."""
    (reason,) = reasons(found)
    return reason


def test_nothing_stands_out_of_a_quiet_machine() -> None:
    assert reasons(facts()) == []


@pytest.mark.parametrize("case", SLOW_VALUES, ids=lambda case: f"{case.key}={case.slow}")
def test_a_switch_that_is_slow_is_named_with_the_value_that_mends_it(case) -> None:
    reason = only(facts({case.key: case.slow}))
    assert (reason.sentence, reason.keys) == (case.sentence, {case.key: case.fast})
    assert reasons(facts({case.key: case.fast})) == []


@pytest.mark.parametrize(
    ("most", "running", "names", "mends"),
    [
        (0, 1, ["interactive"], {keys.INTERACTIVE_ITL: 64}),
        (3, 8, ["interactive"], {keys.MAX_BATCH: 3}),
        (8, 8, ["interactive", "batch"], {keys.ADMISSION: "classes"}),
        (8, 8, ["interactive"], {}),
    ],
)
def test_late_answers_are_told_with_what_could_be_kept(most: int, running: int, names: list[str], mends: Any) -> None:
    services = [
        ServiceFigures(service=name, first_token=1, between_tokens=0.05, most=most, ended=4, in_time=1)
        for name in names
    ]
    queue = QueueCounts(waiting=0, running=running, prefilling=0)
    found = reasons(facts(frame=telemetry(services=services, queue=queue, latency=Latencies(itl_p95_ms=63.2))))
    assert found[0].sentence == "3 of 4 interactive answers of the last minute were late."
    assert found[0].keys == mends
    assert "50 ms between tokens" in found[0].detail


def test_every_switch_whose_figure_is_speed_has_its_sentence() -> None:
    unmeasured = {
        keys.EARLY_LAUNCH,
        keys.FETCHED_AHEAD,
        keys.RESIDENT,
    }  # nobody knows yet whether these are slow when off
    fast = {option.key for option in catalogue.BY_KEY.values() if option.measure.metric == SPEED}
    assert fast <= unmeasured | {case.key for case in SLOW_VALUES}


def test_a_switch_that_cannot_be_set_is_no_advice() -> None:
    fixed = facts({keys.BATCH_INVARIANT: True})
    spec = msgspec.structs.replace(fixed.switches[keys.BATCH_INVARIANT], disabled_reason="Not here.")
    assert reasons(fixed._replace(switches={**fixed.switches, keys.BATCH_INVARIANT: spec})) == []


REFUSED = Acceptance(proposer="draft", proposed=100, accepted=20, by_depth=[0.6, 0.1], draft_length=4)


def test_drafts_of_a_fixed_length_that_are_refused() -> None:
    frame = telemetry(acceptance=[REFUSED])
    reason = only(facts({keys.SPECULATION: "draft", keys.DRAFT_LENGTH: 4}, frame=frame))
    assert "draft model" in reason.sentence
    assert "four times in five" in reason.sentence
    assert reason.keys == {keys.DRAFT_LENGTH: 0, keys.SPECULATION: "auto"}
    assert reasons(facts({keys.SPECULATION: "draft"}, frame=frame)) == [], "an automatic length rests by itself"
    kept = msgspec.structs.replace(REFUSED, accepted=60)
    assert reasons(facts({keys.DRAFT_LENGTH: 4}, frame=telemetry(acceptance=[kept]))) == []
    few = msgspec.structs.replace(REFUSED, proposed=10, accepted=0)
    assert reasons(facts({keys.DRAFT_LENGTH: 4}, frame=telemetry(acceptance=[few]))) == []


def test_of_a_tree_one_path_can_be_accepted() -> None:
    tree = Acceptance(
        proposer="medusa", proposed=160, accepted=30, by_depth=[], draft_length=4, tree_nodes=16, tokens_per_step=4.0
    )
    assert reasons(facts({keys.TREE_NODES: 16}, frame=telemetry(acceptance=[tree]))) == []
    poor = msgspec.structs.replace(tree, tokens_per_step=1.2)
    reason = only(facts({keys.TREE_NODES: 16}, frame=telemetry(acceptance=[poor])))
    assert "Drafts by Medusa heads are refused more than four times in five" in reason.sentence
    assert reason.keys == {keys.TREE_NODES: 0}, "it is automatic already"


def test_no_speculation() -> None:
    assert only(facts({keys.SPECULATION: "off"})).keys == {keys.SPECULATION: "auto"}
    two = telemetry(queue=running(2))
    assert all(not reason.keys for reason in reasons(facts({keys.SPECULATION: "off"}, frame=two)))


def test_what_other_programs_take() -> None:
    reason = only(facts(machine=QUIET._replace(others=3.2)))
    assert "3.2 of this computer's 8 cores" in reason.sentence
    assert reasons(facts(machine=QUIET._replace(others=0.4))) == []
    assert reasons(facts(machine=QUIET._replace(others=0.9, cores=8))) == [], "there is a core for it"
    assert reasons(facts(machine=QUIET._replace(others=3.2), gpu=True)) == []


def test_fewer_threads_than_cores() -> None:
    assert "1 of this computer's 8 cores" in only(facts(machine=QUIET._replace(threads=1))).sentence


def test_memory_on_the_disk_and_memory_that_is_full() -> None:
    assert "2.0 GB" in only(facts(machine=QUIET._replace(swapped=2 * GB))).sentence
    assert reasons(facts(machine=QUIET._replace(swapped=10**6))) == []
    assert "Only 100 MB" in only(facts(machine=QUIET._replace(free=10**8))).sentence


def test_a_kernel_that_declined_and_a_gpu_that_is_not_used() -> None:
    said = "32 layers of m use PyTorch: native declined (its group is 96)."
    assert only(facts(card=msgspec.structs.replace(CARD, fallbacks=[said]))).sentence == said
    reason = only(facts(machine=QUIET._replace(no_gpu="Its driver changed.")))
    assert "Its driver changed." in reason.sentence
    assert reason.place == "settings"


def test_weights_in_sixteen_bits() -> None:
    assert "4.0 GB are read for each token" in only(facts(dense=True)).sentence
    assert reasons(facts(dense=True, weights=10 << 20)) == [], "they stay in the processor's cache"
    assert "float32" in only(facts(float32=True)).sentence


def test_an_output_head_that_is_half_of_what_is_read() -> None:
    assert only(facts(head=2 * GB)).keys == {keys.OUTPUT_HEAD: "int8"}
    assert reasons(facts(head=2 * GB, machine=QUIET._replace(cache=5 * GB))) == [], "the cache holds them"
    assert reasons(facts(head=GB // 2)) == []


def test_keys_and_values_that_are_most_of_what_is_read() -> None:
    long = telemetry(bytes_per_pass=10.0 * GB)
    assert only(facts(frame=long)).keys == {keys.KV_KIND: "int8"}
    assert "new chat" in only(facts({keys.KV_KIND: "int8"}, frame=long)).action
    assert reasons(facts(frame=telemetry(bytes_per_pass=5.0 * GB))) == []
    drafting = {"bytes_per_token": 10.0 * GB, "acceptance": [REFUSED]}
    assert reasons(facts(frame=telemetry(bytes_per_pass=4.1 * GB, **drafting))) == [], "drafters read them"
    fast = {"bytes_per_token": 3.0 * GB, "acceptance": [REFUSED]}
    assert "6.0 GB of the 10.0 GB" in only(facts(frame=telemetry(bytes_per_pass=10.0 * GB, **fast))).sentence


def test_a_cache_that_is_full() -> None:
    paused = telemetry(preemptions=3)
    assert "3 answers were paused" in only(facts(frame=paused)).sentence
    whole = only(facts({keys.PAGE_RESERVATION: "whole_context"}, frame=paused))
    assert whole.keys == {keys.PAGE_RESERVATION: "on_demand"}
    waiting = QueueCounts(waiting=2, running=1, prefilling=0)
    full = PageCounts(total=100, used=100, live_tokens=1500, cached=2)
    assert "2 requests wait" in only(facts(frame=telemetry(queue=waiting, pages=full))).sentence
    assert reasons(facts(frame=telemetry(queue=waiting))) == [], "there are pages: they wait for their turn"


def test_a_prompt_that_left_its_cache() -> None:
    prompt = LastPrompt(tokens=2000, cached=800, diverged=811, divergence="An answer was changed.", before=1900)
    reason = only(facts(prompt=prompt))
    assert "left its cache at token 812 of 2,000" in reason.sentence
    assert "about 1,089 were computed again" in reason.sentence
    assert reason.detail == "An answer was changed."
    assert reasons(facts(prompt=prompt._replace(tokens=850))) == [], "so few are no matter"
    assert reasons(facts(prompt=prompt._replace(diverged=None))) == []


def test_small_chunks_and_steps_that_are_no_graph() -> None:
    assert only(facts({keys.TOKEN_BUDGET: 64})).keys == {keys.TOKEN_BUDGET: 512}
    eager = telemetry(captured=0.1, eager_reason="drafts are verified")
    assert (
        "90 % of the steps went through the model call by call: drafts are verified."
        in only(facts(frame=eager)).sentence
    )


def test_what_the_gpu_and_the_battery_say() -> None:
    assert "its temperature" in only(facts(machine=QUIET._replace(throttled="its temperature"))).sentence
    assert "battery" in only(facts(machine=QUIET._replace(battery=True))).sentence
    held = msgspec.structs.replace(MEMORY, scope="device", other_programs=6 * GB, total=24 * GB)
    named = facts(frame=telemetry(memory=held), gpu=True, machine=QUIET._replace(held=(("game", 6 * GB),)))
    assert only(named).sentence == "game holds 6.0 GB of the GPU's memory."
    unnamed = only(facts(frame=telemetry(memory=held), gpu=True)).sentence
    assert unnamed == "Other programs hold 6.0 GB of the GPU's memory."


def test_a_model_that_was_just_loaded_and_answers_side_by_side() -> None:
    assert "just been loaded" in only(facts(steps=3)).sentence
    several = telemetry(queue=running(4), generated_per_second=40.0)
    assert "40 tokens a second together, 10 for each" in only(facts(frame=several)).sentence


def test_what_gains_most_stands_first() -> None:
    many = facts(
        {keys.BATCH_INVARIANT: True, keys.TOKEN_BUDGET: 64},
        machine=QUIET._replace(swapped=2 * GB, battery=True),
        steps=1,
    )
    sentences = [reason.sentence for reason in reasons(many)]
    order = ("on the disk", "Batch-invariant", "at most 64", "battery", "just been loaded")
    assert [word in sentence for word, sentence in zip(order, sentences, strict=True)] == [True] * 5


def test_what_the_speed_is_made_of_says_what_was_measured_and_nothing_else() -> None:
    at_rest = telemetry(latency=Latencies(), bytes_per_pass=None, bandwidth_share=None, acceptance=[])
    assert made_of(facts(frame=at_rest)) == ["A pass over the model reads 4.0 GB of weights."]
    drafted = Acceptance(
        proposer="draft", proposed=100, accepted=70, by_depth=[0.7], draft_length=3, tokens_per_step=3.1
    )
    busy = telemetry(
        latency=Latencies(step_ms=23.4, host_ms=2.0), bytes_per_pass=4.5 * GB, bandwidth_share=0.8, acceptance=[drafted]
    )
    prompt = LastPrompt(tokens=8300, cached=8120)
    assert made_of(facts(frame=busy, prompt=prompt)) == [
        "A step takes 23 ms, of which Kvasir's own work around the model takes 2.0 ms.",
        "A pass over the model reads 4.5 GB: 4.0 GB of weights and 500 MB of keys and values.",
        "One that checks drafts gives an answer 3.1 tokens, others one: 70 % of 100 drafted ones were accepted.",
        "Of the last prompt's 8,300 tokens 8,120 came from the cache, and 180 were read.",
        "Memory sets the pace: 80 % of its speed is used.",
    ]
    slow = msgspec.structs.replace(
        busy, latency=Latencies(step_ms=23.4, host_ms=12.0), bandwidth_share=0.2, acceptance=[]
    )
    said = made_of(facts(frame=slow, prompt=LastPrompt(tokens=40, cached=0)))
    assert said[2:] == [
        "Each gives an answer one token: nothing was drafted.",
        "None of the last prompt's 40 tokens were in the cache: all were read.",
        "Kvasir's own work sets the pace as much as the model does: it is 51 % of a step.",
    ]
    slow = msgspec.structs.replace(slow, latency=Latencies(step_ms=23.4, host_ms=1.0))
    assert made_of(facts(frame=slow))[-1].startswith("Arithmetic sets the pace")
    assert "pace" not in made_of(facts(frame=busy, weights=8 << 20))[-1], "it reads from the processor's cache"


def test_the_limit() -> None:
    at_rest = telemetry(bytes_per_token=None, bytes_per_pass=None, bandwidth_share=None)
    assert limit(facts(bandwidth=0.0, frame=at_rest)) == ""
    assert limit(facts(frame=at_rest)).endswith("without drafts, no more than 5.0 tokens a second are possible.")
    reading = limit(facts(frame=telemetry(bytes_per_token=5.0 * GB, bytes_per_pass=5.0 * GB, bandwidth_share=0.61)))
    assert reading.endswith("no more than 4.0 tokens a second are possible, and the last seconds reached 61 % of that.")
    drafting = limit(facts(frame=telemetry(bytes_per_token=2.0 * GB, bytes_per_pass=5.0 * GB, acceptance=[REFUSED])))
    assert "at the present acceptance of drafts, no more than 10 tokens" in drafting
    assert "processor's cache" in limit(facts(weights=8 << 20, frame=at_rest))
    many_accepted = telemetry(bytes_per_token=1e7, bytes_per_pass=5.0 * GB, acceptance=[REFUSED])
    assert "processor's cache" not in limit(facts(frame=many_accepted)), "that is what a pass reads, not a token"


def test_recent_programs_are_an_average_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.decoding.telemetry import processor

    now = 0.0
    monkeypatch.setattr(processor, "_times", lambda parent: (4 * now, 4 * now - 2.0 * max(0.0, now - 20), 0.0))
    monkeypatch.setattr(processor.psutil, "cpu_count", lambda: 4)
    recent = RecentPrograms(clock=lambda: now)
    assert recent.cores() == 0
    while now < 30:
        recent.look()
        now += 1
    now = 29.9
    assert recent.cores() == pytest.approx(2 * 9.9 / 10.9, abs=0.01)


def test_steps_count_from_the_load_on() -> None:
    window = TelemetryWindow()
    window.add(step(1.0))
    window.model_changed()
    window.add(step(2.0))
    assert (window.steps, window.totals["steps"]) == (1, 2)


def test_no_gpu_no_throttling() -> None:
    import torch

    assert nvml.throttling(torch.device("cpu")) == ""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a real engine with the bundled model and its draft."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    known = paths.bundled_model()
    server = Server(open_socket("127.0.0.1", 0), TOKEN, lambda emit: Engine(emit, "cpu"), MachineProbes("cpu"))
    server.load(known.path, known.draft, p.LoadOptions(device="cpu", memory=400e6))
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(300)
    with connect(f"ws://127.0.0.1:{server.port}/ws", max_size=p.MAX_FRAME, compression=None) as socket:
        yield Client(socket)
    server.stop()
    thread.join(300)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_real_engine_names_what_was_done_to_it(asked: Client) -> None:
    while asked.welcome.loaded is None and not isinstance(asked.receive(), p.Loaded):
        pass
    changed: dict[str, Value] = {
        keys.BATCH_INVARIANT: True, keys.SPECULATION: "draft", keys.DRAFT_LENGTH: 12, keys.NGRAM_FIRST: False,
    }  # fmt: skip
    for key, value in changed.items():
        asked.send(p.Set(key=key, value=value))
    hopeless = " ".join(f"zq{7 * index % 31}x" for index in range(40))
    sampling = p.Sampling(temperature=2.0, seed=1, max_tokens=40, ignore_eos=True)
    asked.send(p.Generate(id="g", prompt=hopeless, sampling=sampling))
    asked.until(p.Finished)
    asked.send(p.Why(id="w"))
    found = asked.until(p.Reasons)
    assert any(part.startswith("A step takes ") for part in found.parts)
    assert any(part.startswith("A pass over the model reads ") for part in found.parts)
    mended = [reason.keys for reason in found.reasons if reason.keys]
    assert mended[0] == {keys.BATCH_INVARIANT: False}
    assert {keys.DRAFT_LENGTH: 0, keys.SPECULATION: "auto"} in mended[1:]
    for reason in found.reasons:
        for key, value in reason.keys.items():
            asked.send(p.Set(key=key, value=value))
    mended_keys = {keys.BATCH_INVARIANT, keys.DRAFT_LENGTH}
    for turn in range(100):  # settings take hold between two steps, and nothing waits for them
        asked.send(p.Why(id=f"again {turn}"))
        while (again := asked.until(p.Reasons)).id != f"again {turn}":
            pass
        if not mended_keys & {key for reason in again.reasons for key in reason.keys}:
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"it still names {again.reasons}")


def test_without_a_model_the_answer_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.engine.doors.network.conftest import Running

    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    running = Running(loaded=False)
    try:
        with running.connect() as socket:
            client = Client(socket)
            client.send(p.Why(id="w"))
            error = client.until(p.Error)
            assert (error.code, error.id) == ("no_model", "w")
    finally:
        running.stop()
