"""Commands of the terminal from the table of operations, and the one by which another process has one performed."""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from engine.base.terminal import console, send, text_column
from engine.doors.cli.arguments import device_of, path_or_name_of
from engine.doors.cli.errors import importing, report_errors

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for other programs.")]
Body = Callable[[Any, bool], object]
"""What a command does with its request, and whether ``--json`` was given."""


def command(
    operation: Any, body: Body, arguments: Sequence[str] = (), names: Mapping[str, str] = {}, json: bool = True
) -> Callable[..., None]:
    """A command with an option for each field of the operation's request; the required ones, and ``arguments``, have no
    option. ``names``: options that are not called as their field is."""
    import msgspec

    fields = msgspec.structs.fields(operation.request)
    readers = {field.name: _reader(field.name, field.type, names) for field in fields}

    def run(**values: Any) -> None:
        with report_errors():
            read = {name: readers[name](value) for name, value in values.items() if name in readers}
            body(operation.request(**read), values.get("json", False))

    parameters = [_parameter(field, arguments, names) for field in fields]
    parameters.sort(key=lambda each: each.default is not inspect.Parameter.empty)
    if json:
        parameters.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__doc__ = inspect.getdoc(operation.request)
    return run


def showing(
    operation: Any, show: Callable[[Any], object], records: Callable[[Any], Sequence[object]] | None = None
) -> Body:
    """Perform the operation and show its answer: to people by ``show``, with ``--json`` as ``records``, one a line."""

    def body(request: Any, json: bool) -> None:
        with importing():
            from engine.services.operations import function_of, perform

            function_of(operation)
        with copying(json) as tell:
            answer = perform(operation, request, tell)
        if json:
            lines(records(answer) if records is not None else answer if isinstance(answer, list) else [answer])
        else:
            show(answer)

    return body


def operation(name: Annotated[str, typer.Argument()]) -> None:
    """Perform an operation whose request is on standard input: events, then its answer or error, one a line."""
    from engine.protocol import CallAnswer, CallEvent, Error
    from engine.protocol.operations import OPERATIONS
    from engine.services.failures import sentence_of
    from engine.services.operations import code_of, encoded, perform

    end: CallAnswer | Error
    try:
        row = OPERATIONS[name]
        request = row.read_request(sys.stdin.buffer.read())
        answer = perform(row, request, lambda event: lines([CallEvent(id="", event=_raw(event))]))
        end = CallAnswer(id="", answer=_raw(answer))
    except Exception as error:
        end = Error(code=code_of(error), message=sentence_of(error))
    send(encoded(end))


def lines(records: Sequence[object]) -> None:
    """One object a line."""
    from engine.services.operations import encoded

    for each in records:
        send(encoded(each))


@contextmanager
def copying(json: bool) -> Iterator[Callable[[Any], object]]:
    """Yield what reports the events of a copy: as JSON lines, or with a bar once there is one."""
    if json:
        yield lambda moved: lines([moved])
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = (text_column("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=console(stderr=True), transient=True)

    def show(moved: Any) -> None:
        bars.start()
        task = bars.task_ids[0] if bars.task_ids else bars.add_task("Copying", total=moved.total)
        bars.update(task, completed=moved.done)

    try:
        yield show
    finally:
        if bars.task_ids:
            bars.stop()


def _raw(record: object) -> Any:
    import msgspec

    from engine.services.operations import encoded

    return msgspec.Raw(encoded(record))


def _parameter(field: Any, arguments: Sequence[str], names: Mapping[str, str]) -> inspect.Parameter:
    """The parameter of a field, as typer reads it."""
    kind, metas = _opened(field.type)
    pairs = ((name, getattr(meta, name)) for meta in metas for name in ("description", "ge", "le"))
    said = {name: value for name, value in pairs if value is not None}
    more: dict[str, Any] = {"help": said.get("description")}
    if kind in (int, float):
        more |= {"min": said.get("ge"), "max": said.get("le")}
    default = inspect.Parameter.empty if field.required else field.default
    optional = default is None
    if field.required or field.name in arguments:
        info = typer.Argument(**more, show_default=default not in ("", None))
    else:
        option = names.get(field.name, f"--{field.name.replace('_', '-')}")
        info = typer.Option(option, **more, show_default=default not in ("", None, False))
    annotation = Annotated[Union[kind, None] if optional else kind, info]  # type: ignore[valid-type] # noqa: UP007
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _opened(kind: Any) -> tuple[Any, list[Any]]:
    """The plain type of a field (bool, int, float or str) and what its annotations say."""
    metas: list[Any] = []
    if get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        found, more = _opened(inner[0])
        return found, [*metas, *more]
    return (kind if kind in (bool, int, float) else str), metas


def _reader(name: str, kind: Any, names: Mapping[str, str]) -> Callable[[Any], Any]:
    """Reader of an option's value, which raises typer.BadParameter with a sentence."""
    if name == "device":
        return device_of
    if name == "model":
        return path_or_name_of
    if name in _PATHS:
        return lambda value: None if value is None else os.path.abspath(os.path.expanduser(value))
    known = _choices(kind)

    def read(value: Any) -> Any:
        if known and value not in known:
            text = f"{value!r} is not one of {', '.join(filter(None, known))}."
            raise typer.BadParameter(text, param_hint=names.get(name, f"--{name}"))
        return value

    return read


_PATHS = frozenset({"path", "add", "remove", "downloads", "move_to"})


def _choices(kind: Any) -> tuple[str, ...]:
    """The values that a field may have; () for any."""
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(choice for each in get_args(kind) for choice in _choices(each))
    return ()
