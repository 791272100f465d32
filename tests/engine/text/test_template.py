from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import ChatMessage
from engine.text.prompt import prompt_ids
from engine.text.template import NO_TEMPLATE, ChatTemplate, PromptError
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import CHATML, write_folder

HELLO = [ChatMessage.of("system", "Be brief."), ChatMessage.of("user", "Hello\n")]


def render(source: str, **tokens: str) -> str:
    return ChatTemplate(source, tokens).render(HELLO)


def test_chatml() -> None:
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello\n<|im_end|>\n<|im_start|>assistant\n"
    assert ChatTemplate(CHATML).render(HELLO) == expected
    assert (
        ChatTemplate(CHATML).render(HELLO, add_generation_prompt=False) == expected[: -len("<|im_start|>assistant\n")]
    )


def test_sources_in_order(tmp_path: Path) -> None:
    assert ChatTemplate.open(tmp_path).notice == NO_TEMPLATE
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "from the config", "eos_token": None}))
    assert ChatTemplate.open(tmp_path).render(HELLO) == "from the config"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "the default {{ bos_token }}"}]
    config.write_text(json.dumps({"chat_template": named, "bos_token": {"content": "<s>", "lstrip": False}}))
    assert ChatTemplate.open(tmp_path).render(HELLO) == "the default <s>"
    config.write_text(json.dumps({"chat_template": named[:1]}))
    assert ChatTemplate.open(tmp_path).render(HELLO) == "tools"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "older processors"}))
    assert ChatTemplate.open(tmp_path).render(HELLO) == "older processors"
    (tmp_path / "chat_template.jinja").write_text("its own file")
    own = ChatTemplate.open(tmp_path)
    assert own.render(HELLO) == "its own file"
    assert own.own
    assert not own.notice
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    older = ChatTemplate.open(tmp_path)
    assert older.own
    assert older.notice.startswith("The file chat_template.jinja cannot be read, so the chat template of another file")


NAMED: list[Any] = [
    [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}],
    {"default": "d", "tool_use": "t"},
    {"tool_use": "t", "default": "d", "rag": 5},
]


@pytest.mark.parametrize("named", NAMED)
def test_tools_have_a_template_of_their_own(named: Any) -> None:
    template = ChatTemplate.chosen(named, {})
    assert [template.render([], tools=tools) for tools in (None, [], [{"name": "f"}])] == ["d", "d", "t"]


@pytest.mark.parametrize("named", [[{"name": None, "template": None}], [{"name": "default", "template": 5}], {"a": 1}])
def test_what_is_no_text_is_no_template(named: Any) -> None:
    assert not ChatTemplate.chosen(named, {}).own


def test_an_unreadable_config_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{broken")
    assert not ChatTemplate.open(tmp_path).own


def test_the_plain_template() -> None:
    template = ChatTemplate.open("/nonexistent")
    assert template.render(HELLO) == "System: Be brief.\n\nUser: Hello\n\nAssistant:"


def test_environment_is_the_usual_one() -> None:
    assert render("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role }}{% endfor %}") == "system"
    assert render("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"
    assert render("{{ messages[0] | tojson }}") == '{"role": "system", "content": "Be brief."}'
    assert render("{{ {'a': '<é>'} | tojson(indent=1) }}") == '{\n "a": "<é>"\n}'
    assert render("{% generation %}a{% endgeneration %}b") == "ab"
    assert render("{{ bos_token }}|{{ pad_token }}", bos_token="<s>") == "<s>|"
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("{% for m in messages %}{{ loop.length }}{{ loop.revindex }}{% endfor %}") == "2221"
    assert render("{% for m in messages if m.role == 'user' %}{{ m.role }}{{ loop.length }}{% endfor %}") == "user1"
    assert (
        render("{{ 'a' ~ 'b' ~ 1 ~ 'c' }}{{ '%05.1f|%s' % (2.5, 'x') }}{{ '{:>4}'.format('y') }}") == "ab1c002.5|x   y"
    )
    assert render("{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}") == "2"


def test_a_refusal_is_said() -> None:
    with pytest.raises(PromptError, match=r"refused the conversation: No system role\. Change the messages"):
        render("{{ raise_exception('No system role') }}")


@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{ messages[5].content }}", "{{ nothing.at.all }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ x | q }}"],
)
def test_a_broken_template_is_said(source: str) -> None:
    with pytest.raises(PromptError, match=r"does not work"):
        render(source)


ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ messages.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{{ dict.__class__.__mro__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{x.__class__}'.format_map({'x': ''}) }}",
    "{% set f = '{0.__class__}'.format %}{{ f('') }}",
    "{{ ('{0.__class__}' | attr('format'))('') }}",
    "{{ (['{0.__class__}'] | map('attr', 'format') | first)('') }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='x') }}",
    "{{ messages.clear() }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}{{ ns }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{{ (messages | map('string') | list).__class__ }}",
    "{% macro m() %}{{ caller }}{% endmacro %}{{ m.__call__.__globals__ }}",
    "{{ range.__class__ }}",
    "{{ loop.__init__.__globals__ }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_known_escapes_are_refused(source: str) -> None:
    """Either an error, or text that shows nothing of Python (an undefined value renders as nothing)."""
    before = [(m.role, m.content) for m in HELLO]
    try:
        text = render(source)
    except PromptError:
        text = ""
    assert not any(sign in text for sign in ("class", "module", "object", "function", "root:", "uid=", "mro", "<"))
    assert [(m.role, m.content) for m in HELLO] == before


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000000) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ 10000000000 * [1] }}",
        "{{ 9 ** 999999999 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w=1000000000) }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ 'x' | center(10000000000) }}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ],
)
def test_endless_templates_are_stopped(source: str) -> None:
    with pytest.raises(PromptError):
        render(source)


def test_bounds_start_anew_each_time() -> None:
    template = ChatTemplate("{% for i in range(90000) %}{% endfor %}done")
    assert [template.render(HELLO) for _ in range(4)] == ["done"] * 4


def test_prompt_ids(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "llama3")
    tokenizer, template = Tokenizer.open(folder), ChatTemplate.open(folder)
    bos = tokenizer.token_id("<|begin_of_text|>")
    ids = prompt_ids(tokenizer, template, HELLO)
    assert ids.count(bos) == 1
    assert ids[0] == bos
    assert prompt_ids(tokenizer, template, "Hello")[0] == bos
    plain = ChatTemplate.open("/nonexistent")
    assert prompt_ids(tokenizer, plain, HELLO).count(bos) == 1
