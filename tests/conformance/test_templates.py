"""Chat templates in the styles of the families against transformers; hostile ones against the sandbox's bounds."""

from __future__ import annotations

import functools
import json
import time
from typing import Any

import pytest
import tokenizers

from engine.protocol import ChatMessage, ToolCall, ToolResult
from engine.text.template import CallForm, ChatTemplate, PromptError
from tests.conformance.templates import CALLED, PLAIN, QWEN3, STYLES, TOOLS, WITH_TOOLS
from tests.engine.text.samples import trained

transformers = pytest.importorskip("transformers")

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@functools.cache
def theirs() -> Any:
    inner = tokenizers.Tokenizer.from_str(trained("sentencepiece"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **TOKENS)


def outcome(make: Any) -> str:
    """The text, or that the template refused."""
    try:
        return str(make())
    except Exception as error:
        assert "must alternate" in str(error) or "roles are supported" in str(error)  # noqa: PT017 - either's own kind
        return "refused"


def same(style: str, messages: list[dict[str, Any]], prompt: bool, **variables: Any) -> str:
    """Both renderings, which are one."""
    source = STYLES[style]
    ours = outcome(lambda: ChatTemplate(source, TOKENS).render(messages, prompt, **variables))
    expected = outcome(
        lambda: theirs().apply_chat_template(
            messages, chat_template=source, tokenize=False, add_generation_prompt=prompt, **variables
        )
    )
    assert ours == expected
    return ours


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("prompt", [True, False])
def test_conversations(style: str, prompt: bool) -> None:
    rendered = [same(style, messages, prompt) for messages in PLAIN]
    assert sum(text != "refused" for text in rendered) >= 3
    messages = [ChatMessage.of(**message) for message in PLAIN[0]]
    assert ChatTemplate(STYLES[style], TOKENS).render(messages, prompt) == rendered[0]


@pytest.mark.parametrize("style", WITH_TOOLS)
@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("messages", [*PLAIN[:2], CALLED])
def test_tools(style: str, prompt: bool, messages: list[dict[str, Any]]) -> None:
    text = same(style, messages, prompt, tools=TOOLS)
    assert "weather" in text
    assert same(style, messages, prompt, tools=None) != text


@pytest.mark.parametrize("style", WITH_TOOLS)
def test_calls_and_results_of_a_conversation(style: str) -> None:
    template, call = ChatTemplate(STYLES[style], TOKENS), CALLED[1]["tool_calls"][0]
    arguments = json.dumps(call["function"]["arguments"])
    said = [
        ChatMessage.of("user", CALLED[0]["content"]),
        ChatMessage.of("assistant", "", "Look.", calls=[ToolCall(call["id"], "weather", arguments)]),
        ChatMessage(role="tool", parts=[ToolResult(call["id"], CALLED[2]["content"], "weather")]),
    ]
    assert template.call_form == CallForm()
    assert template.render(said, tools=TOOLS) == same(style, CALLED, True, tools=TOOLS)


def test_calls_as_templates_take_them() -> None:
    """Some want the arguments as text, some no content, some one call a message, some names of nine letters."""
    call = "{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.function.name }} ARGUMENTS {% endfor %}"
    shows = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}MESSAGE{% endfor %}"

    def shown(message: str) -> ChatTemplate:
        return ChatTemplate(shows.replace("MESSAGE", message))

    as_text = shown(call.replace("ARGUMENTS", "{{ c.function.arguments + '' }}"))
    no_content = shown("{% if m.content is none %}" + call.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") +
                       "{% else %}{{ m.content }}{% endif %}")  # fmt: skip
    one = shown(
        "{% if (m.tool_calls or []) | length > 1 %}{{ raise_exception('one') }}{% endif %}"
        "[{{ m.role }} {{ m.content }}]" + call.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
    )
    short = shown("{# [TOOL_CALLS] #}" + call.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}"))
    assert as_text.call_form == CallForm("", text=True)
    assert no_content.call_form == CallForm(None)
    assert shown("{{ m.content }}").call_form is None
    calls = [ToolCall(f"call_{letter}", letter, f'{{"x": "{letter}"}}') for letter in "ab"]
    results = [ToolResult(call.id, f"result {call.name}") for call in calls]
    said = [ChatMessage.of("assistant", "", calls=calls), ChatMessage(role="tool", parts=[*results])]
    assert as_text.render(said) == 'call_a a {"x": "a"} call_b b {"x": "b"} '
    assert no_content.render(said) == 'call_a a {"x": "a"} call_b b {"x": "b"} result aresult b'
    assert one.render(said) == (
        '[assistant ]call_a a {"x": "a"} [tool result a][assistant ]call_b b {"x": "b"} [tool result b]'
    )
    assert [len(id) for id in short.render(said).split()[::4]] == [9, 9]


@pytest.mark.parametrize("enable_thinking", [True, False])
@pytest.mark.parametrize("messages", [*PLAIN, CALLED])
def test_thinking(enable_thinking: bool, messages: list[dict[str, Any]]) -> None:
    text = same("qwen3", messages, True, enable_thinking=enable_thinking)
    assert text.endswith("<think>\n\n</think>\n\n") is not enable_thinking
    assert ChatTemplate(QWEN3).render(messages, enable_thinking=None) == ChatTemplate(QWEN3).render(messages)


@pytest.mark.parametrize("effort", ["low", "high"])
@pytest.mark.parametrize("messages", PLAIN[:2])
def test_reasoning_effort(effort: str, messages: list[dict[str, Any]]) -> None:
    assert f"Reasoning: {effort}\n" in same("harmony", messages, True, reasoning_effort=effort)


def test_past_thinking_reaches_the_template() -> None:
    """Under both of the names that templates have for it."""
    said = [
        ChatMessage.of("user", "a"),
        ChatMessage.of("assistant", "b", thinking="hm"),
    ]
    spelled = [PLAIN[0][0] | {"content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "hm"}]
    assert ChatTemplate(QWEN3, TOKENS).render(said, False) == same("qwen3", spelled, False)
    assert "<think>\nhm\n</think>" in ChatTemplate(QWEN3, TOKENS).render(said, False)
    assert ChatTemplate("{{ messages[1].thinking }}").render(said) == "hm"


_LONG = "'x' * 9000000"
ATTACKS = {
    # walks from a value to Python
    "mro": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "base": "{{ [].__class__.__base__.__subclasses__()[40]('/etc/passwd').read() }}",
    "item": "{{ ''['__class__']['__mro__'] [1] }}",
    "attr": "{{ ('' | attr('__class__') | attr('__mro__'))[1] }}",
    "attr-joined": "{{ ('' | attr('__cl' ~ 'ass__')) | attr('__mro__') }}",
    "attr-map": "{{ (messages | map(attribute='__class__') | list)[0].__name__ }}",
    "attr-hex": "{{ (''['\\x5f\\x5fclass\\x5f\\x5f']).__mro__ }}",
    "globals": "{{ raise_exception.__globals__['os'].system('id') }}",
    "globals-cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "globals-self": "{{ self.__init__.__globals__.__builtins__.open('/etc/passwd') }}",
    "globals-namespace": "{{ namespace.__init__.__globals__['re'].sys.modules }}",
    "globals-undefined": "{{ nothing.__class__.__init__.__globals__ }}",
    "globals-strftime": "{{ strftime_now.__closure__[0].x }}",
    "globals-tojson": "{{ ({} | tojson).__class__.__init__.__globals__ }}",
    "code": "{{ (messages | map('tojson')).gi_frame.f_globals }}",
    "bound": "{{ ''.join.__self__.__class__ }}",
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format-map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "format-attr": "{{ ('{0.__class__}' | attr('format'))('') }}",
    "format-deep": "{{ '{0.__init__.__globals__[os]}'.format(raise_exception) }}",
    "import": "{% import 'os' as os %}{{ os.system('id') }}",
    "include": "{% include '/etc/passwd' %}",
    "extends": "{% extends '/etc/passwd' %}",
    # changes of what others see
    "append": "{{ messages.append({}) }}",
    "update": "{{ messages[0].update({'role': 'system'}) }}",
    "pop": "{{ messages[0].pop('role') }}",
    "setdefault": "{{ dict().setdefault('a', []) }}",
    "namespace-private": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    # work without end
    "range": "{% for i in range(1000000000) %}{% endfor %}",
    "range-list": "{{ range(1000000000) | list }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "recursive-loop": "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
    "recursive-macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "two-macros": "{% macro f(n) %}{{ g(n) }}{{ g(n) }}{% endmacro %}"
    "{% macro g(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "nested-parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nested-lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "nested-blocks": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "source": "{{ a }}{% if a %}{% endif %}" * 100000,
    # memory without end
    "times": "{{ 'x' * 10 ** 12 }}",
    "times-list": "{{ [0] * 10 ** 10 }}",
    "times-nested": "{% set ns = namespace(a=['x']) %}{% for i in range(60) %}{% set ns.a = [ns.a] * 9 %}{% endfor %}"
    "{{ ns.a }}",
    "doubled": "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
    "doubled-set": "{% set a %}xxxxxxxxxxxxxxxx{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60,
    "doubled-list": "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "doubled-inside": "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
    "{{ ns.a }}",
    "doubled-dict": "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = {'a': ns.a, 'b': ns.a} %}"
    "{% endfor %}{{ ns.a | tojson }}",
    "doubled-call": "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = dict(a=ns.a, b=ns.a) %}"
    "{% endfor %}{{ ns.a | string }}",
    "doubled-pair": "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}"
    "{{ '%s' % (ns.a,) }}",
    "doubled-namespace": "{% set ns = namespace(a='x') %}{% for i in range(60) %}"
    "{% set ns.a = namespace(a=ns.a, b=ns.a) %}{% endfor %}{{ ns.a }}{{ 1 / 0 }}",
    "hoard": "{% set ns = namespace(a=[]) %}{% for i in range(9999) %}{% set ns.a = ns.a + ["
    + _LONG
    + "] %}{% endfor %}",
    "power": "{{ 10 ** 10 ** 10 }}",
    "squares": "{% set ns = namespace(n=9) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"
    "{{ ns.n }}",
    "percent": "{{ '%0999999999d' % 1 }}",
    "percent-star": "{{ '%*s' % (999999999, 1) }}",
    "percent-many": "{{ ('%s' * 900000) % ((" + _LONG + ",) * 900000) }}",
    "percent-named": "{{ ('%(a)s' * 90000) % {'a': " + _LONG + "} }}",
    "format-width": "{{ '{:>999999999}'.format(1) }}",
    "format-many": "{{ ('{0}' * 90000).format(" + _LONG + ") }}",
    "format-map-many": "{{ ('{a}' * 90000).format_map({'a': " + _LONG + "}) }}",
    "join": "{{ (" + _LONG + ").join('y' * 9000000) }}",
    "join-filter": "{{ ('y' * 9000000) | join(" + _LONG + ") }}",
    "replace": "{{ (" + _LONG + ").replace('x', " + _LONG + ") }}",
    "replace-empty": "{{ (" + _LONG + ").replace('', " + _LONG + ") }}",
    "replace-filter": "{{ (" + _LONG + ") | replace('x', " + _LONG + ") }}",
    "split": "{% for i in range(9999) %}{% set a = (" + _LONG + ").split('x') %}{% endfor %}",
    "indent": "{{ ('a\n' * 4000000) | indent(1000000) }}",
    "indent-text": "{{ ('a\n' * 4000000) | indent(" + _LONG + ") }}",
    "tojson-indent": "{{ [1, 2] | tojson(indent=999999999) }}",
    "tojson-separators": "{{ ([1] * 9000000) | tojson(separators=(" + _LONG + ", '')) }}",
    "batch": "{{ [1] | batch(999999999, 'x') | list }}",
    "slice": "{{ [1] | slice(999999999) | list }}",
    "batch-fill": "{{ [1] | batch(9000, " + _LONG + ") | list }}",
    "slice-fill": "{{ [1] | slice(9000, " + _LONG + ") | list }}",
    "center": "{{ 'x' | center(width=10 ** 12) }}",
    "zfill": "{{ 'x'.zfill(10 ** 12) }}",
    "expandtabs": "{{ ('\t' * 90000).expandtabs(tabsize=90000) }}",
    "format-filter": "{{ '%0999999999d' | format(1) }}",
    "format-filter-many": "{{ ('%(a)s' * 90000) | format(a=" + _LONG + ") }}",
    "wordwrap": "{{ (" + _LONG + ") | wordwrap(1) }}",
    "wordwrap-between": "{{ ('x ' * 8000) | wordwrap(1, wrapstring=" + _LONG + ") }}",
    "striptags": "{{ ('<' * 9000000) | striptags }}",
    "pprint": "{{ ([1] * 9000000) | pprint }}",
    "round": "{{ 1.5 | round(999999999, 'ceil') }}",
    "sum": "{{ ([[1] * 9000] * 9000) | sum(start=[]) }}",
    "ljust": "{{ 'x'.ljust(10 ** 12) }}",
    "to_bytes": "{{ (1).to_bytes(10 ** 10, 'big') }}",
}


USES = (
    "{{ '%s=%s' | format('a', 1) }}{{ '%(b).2f' | format(b=1.5) }}{{ '%d %%' | format(7) }}",
    "{{ '7'.zfill(3) }}{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|{{ 'a'.center(4, '-') }}|{{ 'a\tb'.expandtabs(4) }}",
    "{{ 'a' | center(5) }}|{{ 'a' | center(width=6) }}|{{ 5 | center(3) }}",
    "{% for b in messages | batch(2) %}{{ b | length }}{% endfor %}{{ [1, 2, 3] | batch(2, 'x') | list }}",
    "{{ range(5) | slice(2) | list }}{{ [1, 2, 3] | slice(slices=2, fill_with='x') | list }}{{ [] | slice(2) | list }}",
    "{{ '<b>a</b> &amp;  <!-- x -->c' | striptags }}{{ 'a b c d' | wordwrap(3) }}",
    "{{ 'abcdef-gh ij' | wordwrap(width=4, break_long_words=False, wrapstring='/') }}",
    "{{ 'ab cd' | wordwrap(2, true, '+') }}",
    "{{ {'b': [1, 2], 'a': 'x' * 90} | pprint }}{{ ['a', 'b'] | join(d=', ') }}",
    "{{ ['a', 'b'] | map('center', 3) | join('|') }}",
)


@pytest.mark.parametrize("source", USES)
def test_filters_and_methods_are_those_of_transformers(source: str) -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    expected = theirs().apply_chat_template(messages, chat_template=source, tokenize=False)
    assert ChatTemplate(source, TOKENS).render(messages) == expected


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ 'x' | urlize }}", "uses the filter 'urlize', which Kvasir leaves out. Use the model without its"),
        ("{{ ['x'] | map('urlize') | list }}", "uses the filter 'urlize', which Kvasir leaves out."),
        ("{{ 'x'.encode() }}", "it uses the method 'encode', which Kvasir leaves out. Use the model without its"),
        ("{{ 'x' | nonsense }}", "No filter named 'nonsense'. Download the file with the chat template again."),
    ],
)
def test_what_is_left_out_is_told(source: str, says: str) -> None:
    with pytest.raises(PromptError) as refused:
        ChatTemplate(source, TOKENS).render([])
    assert says in str(refused.value)


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS)
def test_attacks_end_in_a_clear_error_within_a_second(source: str) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    began = time.process_time()
    with pytest.raises(PromptError, match=r"^The model's chat template .*\.$") as error:
        ChatTemplate(source, TOKENS).render(messages)
    assert time.process_time() - began < 1
    assert len(str(error.value)) < 600
    assert messages == [{"role": "user", "content": "Hello"}]
    assert ChatTemplate("{{ messages[0].role }}").render(messages) == "user"
