"""CPU seconds of every case: measured in every run, recorded in tests/durations.json, and held.

A case over a second of CPU carries the mark ``slow``; one over ten is ``long``, which `make test` leaves out. A run
that records fails where the record has a case over a second without a mark, or over ten that is not long, or where one
takes TOLERANCE times its limit, which is much: CPU seconds double where other programs share the cores, and processors
differ. Files run in the order of their recorded times, the longest first, so that no worker is left with a long one at
the end.

    python -m tests.kit.durations build/durations.json    # take over what a run measured
"""

from __future__ import annotations

import json
import resource
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RECORD = Path(__file__).resolve().parents[1] / "durations.json"
SLOW_S, LONG_S = 1.0, 10.0
TOLERANCE = 20.0
UNKNOWN_S = 5.0
"""Of a file that no record names."""
SHOWN = 15
_CPU = "cpu"
_SHARED = "shared"
_BREACHES = "kvasir_breaches"
_SPENT = pytest.StashKey[list[float]]()


class Case(NamedTuple):
    """Seconds of a case: of CPU, with its children; of CPU in fixtures that others share; by the clock."""

    cpu: float
    shared: float
    wall: float


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


def limit_of(marks: Iterable[str]) -> float:
    """Seconds of CPU that a case with these marks may take."""
    names = set(marks)
    if "long" in names:
        return float("inf")
    return LONG_S if "slow" in names else SLOW_S


class Durations:
    """Measures in the processes that run cases; collects, tells and writes in the one that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.cases: dict[str, Case] = {}
        self.walls: defaultdict[str, float] = defaultdict(float)
        self.breaches: set[str] = set()
        self.depth = 0
        """Shared fixtures that are being set up, one for the other."""
        self.record = load(RECORD)
        self.holds = bool(config.getoption("record_durations"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[_SPENT] = [cpu_seconds(), 0.0]
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[None]:
        """What a fixture of a file, a folder or the run costs is not its first case's."""
        if fixturedef.scope == "function":
            return (yield)
        begin = cpu_seconds()
        self.depth += 1
        try:
            return (yield)
        finally:
            self.depth -= 1
            item = getattr(request, "_pyfuncitem", None)
            if not self.depth and item is not None and _SPENT in item.stash:
                item.stash[_SPENT][1] += cpu_seconds() - begin

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
        report = yield
        if call.when == "teardown" and _SPENT in item.stash:
            begin, shared = item.stash[_SPENT]
            report.user_properties += [(_CPU, round(cpu_seconds() - begin - shared, 3)), (_SHARED, round(shared, 3))]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.walls[report.nodeid] += report.duration
        seen = dict(report.user_properties)
        if report.when != "teardown" or _CPU not in seen:
            return
        case = Case(seen[_CPU], seen[_SHARED], round(self.walls.pop(report.nodeid), 3))
        self.cases[report.nodeid] = case
        if self.holds and case.cpu > TOLERANCE * (limit := limit_of(report.keywords)):
            self.breaches.add(f"{report.nodeid} took {case.cpu:.1f} s of CPU; its limit is {limit:g} s")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items if self.holds else ():
            seconds = self.record.cases.get(item.nodeid, 0.0)
            limit = limit_of(mark.name for mark in item.iter_markers())
            if seconds > limit:
                self.breaches.add(f"{item.nodeid} takes {seconds} s by tests/durations.json; its limit is {limit:g} s")
        files = self.record.files
        items.sort(key=lambda item: (-files.get(_file(item.nodeid), UNKNOWN_S), _file(item.nodeid)))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[_BREACHES] = sorted(self.breaches)
            return
        if self.breaches and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if path := self.config.getoption("record_durations"):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(json.dumps({name: list(case) for name, case in self.cases.items()}), "utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker of xdist found in the record."""
        self.breaches.update(getattr(node, "workeroutput", {}).get(_BREACHES, ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(case.cpu + case.shared for case in self.cases.values())
        if total > 60:
            terminalreporter.section("CPU seconds")
            terminalreporter.line(f"{total:.0f} s in {len(self.cases)} cases, the longest:")
            for name, case in sorted(self.cases.items(), key=lambda entry: -entry[1].cpu)[:SHOWN]:
                terminalreporter.line(f"{case.cpu:8.1f} s  {name}")
        if self.breaches:
            terminalreporter.section("over their limits of CPU time (tests/kit/durations.py)", red=True)
            for line in sorted(self.breaches):
                terminalreporter.line(line)


class Record(NamedTuple):
    """What tests/durations.json says: seconds of each file by the clock, and of each case over SLOW_S by CPU."""

    files: dict[str, float]
    cases: dict[str, float]


def load(path: Path) -> Record:
    """Nothing, where there is no record."""
    if not path.is_file():
        return Record({}, {})
    read = json.loads(path.read_text("utf-8"))
    return Record(read["files"], read["cases"])


def summed(measured: dict[str, list[float]]) -> Record:
    """The record that what a run measured makes."""
    files: defaultdict[str, float] = defaultdict(float)
    for name, values in measured.items():
        files[_file(name)] += values[2]
    cases = {name: round(cpu, 1) for name, (cpu, *_) in sorted(measured.items()) if cpu > SLOW_S}
    return Record({name: round(seconds, 1) for name, seconds in sorted(files.items())}, cases)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", metavar="FILE", help="write the CPU seconds of every case into this file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations(config), "kvasir-durations")


def main(arguments: list[str]) -> int:
    """Take over what runs measured; files that they did not run keep their seconds."""
    before = load(RECORD)
    measured: dict[str, list[float]] = {}
    for path in arguments:
        measured |= json.loads(Path(path).read_text("utf-8"))
    new = summed(measured)
    kept = {name: seconds for name, seconds in before.cases.items() if _file(name) not in new.files}
    record = Record(dict(sorted((before.files | new.files).items())), dict(sorted((kept | new.cases).items())))
    RECORD.write_text(json.dumps(record._asdict(), indent=1) + "\n", "utf-8")
    sys.stdout.write(
        f"{sum(record.files.values()):.0f} s in {len(record.files)} files, {len(record.cases)} slow cases\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
