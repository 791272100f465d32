"""``kvasir simulate``: tables, JSON, traces from files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine.doors.cli.main import app

TRACE = ["simulate", "--requests", "60", "--rate", "5", "--lengths", "heavy", "--step", "20,1", "--batch", "4"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="kvasir")


def test_every_policy_serves_the_same_trace() -> None:
    found = run(*TRACE)
    assert found.exit_code == 0
    assert "1: 21.0, 256: 276.0" in found.stdout
    assert "mlfq" in found.stdout
    lines = [json.loads(line) for line in run(*TRACE, "--json", "--seed", "0").stdout.splitlines()]
    assert [line["policy"] for line in lines] == ["first_come", "classes", "mlfq", "shortest", "static"]
    assert {line["requests"] for line in lines} == {60}
    by_name = {line["policy"]: line for line in lines}
    assert by_name["shortest"]["mean"] < by_name["first_come"]["mean"] < by_name["static"]["mean"]
    assert run(*TRACE, "--json", "--seed", "1").stdout.splitlines() != lines


def test_a_trace_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    asks = [{"at": 1.0, "prompt": 10, "answer": 1}, {"at": 0.0, "prompt": 100, "answer": 5, "service": "interactive"}]
    file.write_text("\n".join(json.dumps(each) for each in asks))
    found = json.loads(run(*TRACE, "--trace", str(file), "--policy", "classes", "--json").stdout)
    assert found["requests"] == 2
    assert found["median"] == pytest.approx(0.12 + 4 * 0.021)
    assert found["seconds"] == pytest.approx(1.03)


def test_a_trace_is_the_access_log_of_a_server(tmp_path: Path) -> None:
    file = tmp_path / "served.log"
    asked = (
        "INFO engine.doors.access: time=2026-11-29T12:00:0{}.500+00:00 key=mine path=/v1/{} status=200 seconds=1.000"
    )
    lines = [
        "INFO engine: the server listens",
        asked.format(2, "completions") + " prompt_tokens=10 generated_tokens=1 service=batch",
        asked.format(2, "models"),
        asked.format(1, "embeddings") + " prompt_tokens=10 generated_tokens=0",
        asked.format(1, "completions") + " prompt_tokens=100 generated_tokens=5 service=interactive",
    ]
    file.write_text("\n".join(lines))
    found = json.loads(run(*TRACE, "--trace", str(file), "--policy", "classes", "--json").stdout)
    assert found["requests"] == 2
    assert found["median"] == pytest.approx(0.12 + 4 * 0.021)
    assert found["seconds"] == pytest.approx(1.03)


def test_each_class_has_a_figure_of_its_own() -> None:
    """A flood of batch work harms no interactive request where classes are served."""
    flood = [*TRACE, "--rate", "20", "--class", "interactive=1", "--class", "batch=9", "--policy", "classes"]
    told = json.loads(run(*flood, "--json").stdout)["services"]
    assert 5 * told["interactive"] < told["batch"]
    assert f"{told['interactive']:.2f}" in run(*flood).stdout


def test_steps_of_another_machine_are_computed() -> None:
    """A machine twice as fast in both takes half the time."""
    options = ["simulate", "--requests", "20", "--lengths", "fixed", "--policy", "static", "--json"]
    slow, fast = (
        json.loads(run(*options, "--rate", rate, "--roofline", roof).stdout)
        for rate, roof in (("5", "0.5,0.01"), ("10", "1,0.02"))
    )
    assert slow["mean"] == pytest.approx(2 * fast["mean"])
    assert slow["steps"] == fast["steps"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--policy", "best"], "--policy knows no best"),
        (["--lengths", "long"], "--lengths knows no long"),
        (["--arrivals", "soon"], "--arrivals knows no soon"),
        (["--class", "vip=1"], "--class knows no vip"),
        (["--class", "batch=x"], "batch=x is not understood"),
        (["--pages", "2", "--requests", "1", "--lengths", "fixed"], "No request of the trace fits"),
        (["--step", "20"], "20 is not understood"),
        (["--step", "nan,1"], "nan,1 is not understood"),
        (["--trace", "nowhere.jsonl"], "cannot be read as a trace"),
        (["--roofline", "4800,990"], "either --step or --roofline"),
    ],
)
def test_what_is_not_understood_is_said(arguments: list[str], told: str) -> None:
    found = run(*TRACE, *arguments)
    assert found.exit_code == 1
    assert told in found.output


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "time=noon prompt_tokens=1 generated_tokens=1",
        '{"at": -1, "prompt": 1, "answer": 1}',
        '{"at": 0, "prompt": 0, "answer": 1}',
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(text)
    assert run(*TRACE, "--trace", str(file)).exit_code == 1
