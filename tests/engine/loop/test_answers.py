"""What of an answer the listener sees when it changes channels in the middle of a step."""

from __future__ import annotations

import pytest

from engine.compute.sampling.params import resolve
from engine.decoding.options import RequestOptions
from engine.decoding.request import Request
from engine.loop.answers import extend, flushed
from engine.protocol import Sampling, TokenInfo
from engine.text.channels import channel_style
from engine.text.stream import TextStream
from tests.conformance.templates import CHATML
from tests.engine.loop.requests_support import new_request
from tests.engine.text.samples import tagged

EOS = 1


def asked(stop: list[str] | None = None) -> Request:
    tokenizer = tagged(False)
    style = channel_style(tokenizer, CHATML)
    assert style is not None
    params = resolve(Sampling(seed=1, stop=stop or []), Sampling())
    stream = TextStream(tokenizer, params.stop, channels=style.parser([]))
    options = RequestOptions(True, "off", 0)
    return new_request("r", [5], params, options, 200, arrival=1, stream=stream)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_every_token_is_in_one_event_of_its_channel(size: int) -> None:
    request = asked(["END"])
    ids = tagged(False).encode("<think>\nThe END of it</think>\n\nA page END")
    events, kept = [], 0
    for start in range(0, len(ids), size):
        outcome = extend(request, [TokenInfo(id=token) for token in ids[start : start + size]], {EOS})
        events += outcome.events
        kept += outcome.kept
        assert all(sum(info.chars for info in event.tokens) <= len(event.text) for event in outcome.events)
    assert outcome.reason == "stop"
    assert kept == len(ids)
    assert [info.id for event in events for info in event.tokens] == ids
    content = [info for event in events for info in event.tokens if event.channel == "content"]
    assert (sum(info.chars for info in content), sum(info.cut for info in content)) == (len("A page "), len("END"))
    text = {
        channel: "".join(event.text for event in events if event.channel == channel)
        for channel in ("thinking", "content")
    }
    assert text == {"thinking": "The END of it", "content": "A page "}
    thought = sum(len(event.tokens) for event in events if event.channel == "thinking")
    assert 0 < thought < len(ids)
    assert request.usage().thinking_tokens == thought


def test_thinking_that_is_cut_off_comes_out_at_the_end() -> None:
    request = asked()
    extend(request, [TokenInfo(id=token) for token in tagged(False).encode("<think>a </thi")], {EOS})
    rest = flushed(request)
    assert [(event.channel, event.text, event.tokens) for event in rest] == [("thinking", " </thi", [])]


def test_the_bytes_of_a_character_are_told_together() -> None:
    """With the token that completes it, which a stop string may still cut off."""
    ids = tagged(False).encode("<think>a</think>\n\n日")
    request = asked(["日"])
    outcomes = [extend(request, [TokenInfo(id=token)], {EOS}) for token in ids]
    assert outcomes[-1].reason == "stop"
    told = [info for event in outcomes[-1].events for info in event.tokens]
    unfinished = len(tagged(False).encode("日"))
    assert [info.id for info in told][-unfinished:] == ids[-unfinished:]
    assert unfinished > 1
    assert told[-1].cut == 1
