"""The `kvasir` command. Everything heavy is imported inside the command that needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.compute.native.instructions import wanted
from engine.doors.cli.arguments import (
    ADAPTER_HELP,
    HEADS,
    HOST_HELP,
    ORIGIN_HELP,
    TRAINED,
    ContextOption,
    DeviceOption,
    DraftOption,
    DtypeOption,
    QuantiseOption,
    adapters_of,
    device_of,
    draft_of,
    dtype_of,
    hosts_of,
    load_options_of,
    origins_of,
    path_or_name_of,
    quantise_of,
    schema_of,
    switches_of,
)
from engine.doors.cli.care import desktop, uninstall
from engine.doors.cli.compare import compare
from engine.doors.cli.errors import importing, report_errors
from engine.doors.cli.gpu import gpu
from engine.doors.cli.keys import keys
from engine.doors.cli.lab import lab
from engine.doors.cli.library import models
from engine.doors.cli.mcp import mcp
from engine.doors.cli.measure import bench
from engine.doors.cli.operations import operation
from engine.doors.cli.quantise import quantise as make_smaller
from engine.doors.cli.simulate import simulate
from engine.doors.cli.streams import leave_deleted_folder, prepare_streams
from engine.loading.memory.environment import bound_spinning
from engine.protocol.serving import PORT
from engine.services.packs import start as packs

app = typer.Typer(
    name="kvasir",
    help="Chat with 4-bit language models on your own GPU, and see why it is fast. Without a command: the window.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_KINDS = " ".join(f"{each.name}: {each.training.about}." for each in TRAINED if each.training)
_SEVERAL = " and ".join(each.label for each in TRAINED if each.training and each.training.several)
MODEL_HELP = "A model's name or the path of its folder; the bundled one if left out."
THINKING_HELP = "Let the model think first, where its template has that setting."
UNLOAD_HELP = "Unload the model after this many minutes without a request, until the next one; 0: never."
DEMAND_HELP = "Load whatever model of `kvasir models list` a request names, in place of the one that is loaded."
LOG_HELP = "A line on standard error for each HTTP request: who asked what when, and how it went; no texts, no keys."
TOOLS_HELP = (
    "An MCP server (`kvasir mcp list`) whose tools an answer may call, or all; repeatable. Calls are asked for."
)
FETCH_HELP = "Fetch pictures from the web addresses that requests name, which may lie in your own network."


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Open the quick chat, a small window for a question.")] = False,
) -> None:
    if version:
        from engine.library.paths import version as installed

        print(installed())
        raise typer.Exit
    with report_errors():
        wanted()  # an unknown KVASIR_NATIVE ends every command alike, and at once
    bound_spinning()
    if context.invoked_subcommand is None:
        from engine.doors.cli.window import open_window

        raise typer.Exit(open_window(quick=quick))


@app.command()
def chat(
    model: Annotated[str, typer.Argument(help=MODEL_HELP, show_default=False)] = "",
    prompt: Annotated[str | None, typer.Option(help="Answer this once on standard output and leave.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as plain text, no chat template.")] = False,
    system: Annotated[str, typer.Option(help="A system prompt for the conversation.")] = "",
    draft: DraftOption = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answer.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 takes the likeliest token.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Max tokens of the answer.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE of an optimisation; repeatable.")] = None,
    device: DeviceOption = "auto",
    quantise: QuantiseOption = "none",
    context: ContextOption = None,
    adapter: Annotated[
        str, typer.Option(help="The folder of a LoRA adapter (PEFT's format) to answer with.", show_default=False)
    ] = "",
    stats: Annotated[bool, typer.Option("--stats", help="One JSON line of measurements per answer on stderr.")] = False,
    thinking: Annotated[
        bool | None, typer.Option("--thinking/--no-thinking", help=THINKING_HELP, show_default=False)
    ] = None,
    effort: Annotated[str, typer.Option(help="Reasoning effort, where the model knows one: low, medium or high.")] = "",
    schema: Annotated[
        Path | None, typer.Option(help="A file with the JSON schema that answers hold to.", show_default=False)
    ] = None,
    tools: Annotated[list[str] | None, typer.Option(help=TOOLS_HELP, show_default=False)] = None,
) -> None:
    """Chat in the terminal. Ctrl-C stops the answer, /help lists the commands."""
    with importing():
        from engine.doors.cli.chat import ChatArguments, run_chat
        from engine.protocol import Sampling, Thinking

    settings = ChatArguments(
        model=path_or_name_of(model),
        draft=draft_of(draft),
        system=system,
        sampling=Sampling(temperature=temperature, seed=seed, max_tokens=max_tokens),
        switches=switches_of(set_ or []),
        device=device_of(device),
        stats=stats,
        raw=raw,
        thinking=Thinking(on=thinking, effort=effort),
        load_options=load_options_of(quantise=quantise, context=context),
        adapter=adapter,
        structured=None if schema is None else schema_of(schema),
        tools=tools or (),
    )
    if raw and tools:
        raise typer.BadParameter("Plain continuation calls no tools. Leave one of them out.", param_hint="--tools")
    if raw and prompt is None:
        raise typer.BadParameter("Plain continuation needs a text: give --prompt too.", param_hint="--raw")
    with report_errors():
        raise typer.Exit(run_chat(settings, prompt))


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on. Beyond the loopback others can reach it.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = PORT,
    model: Annotated[str | None, typer.Option(help="Load this at the start; the bundled one if left out.")] = None,
    draft: DraftOption = None,
    device: DeviceOption = "auto",
    quantise: QuantiseOption = "none",
    context: ContextOption = None,
    adapter: Annotated[list[str] | None, typer.Option(help=ADAPTER_HELP, show_default=False)] = None,
    fetch_pictures: Annotated[bool, typer.Option("--fetch-pictures", help=FETCH_HELP)] = False,
    allow_origin: Annotated[list[str] | None, typer.Option(help=ORIGIN_HELP, show_default=False)] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help=HOST_HELP, show_default=False)] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, with a self-signed certificate made here once.")] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Encrypt with this certificate (PEM, its chain after it).", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Its key, where it is in a file of its own.", show_default=False)
    ] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help=LOG_HELP)] = False,
    unload_after: Annotated[float, typer.Option(min=0, max=1e6, help=UNLOAD_HELP)] = 0.0,
    load_on_demand: Annotated[bool, typer.Option("--load-on-demand", help=DEMAND_HELP)] = False,
    child: Annotated[bool, typer.Option("--child", help="Started by the window: token and life by stdin.")] = False,
) -> None:
    """Serve the engine for other programs: websocket and OpenAI-shaped HTTP on one port."""
    with importing():
        from engine.doors.cli.serve import Allowed, Policy, run_child, run_server, tls_of

    chosen = None if model is None else (path_or_name_of(model), draft_of(draft))
    with report_errors():
        kind = device_of(device)
        options = load_options_of(quantise=quantise, context=context)
        if child and adapter:
            raise typer.BadParameter("The window loads adapters itself.", param_hint="--adapter")
        if child and load_on_demand:
            raise typer.BadParameter("The window chooses models itself.", param_hint="--load-on-demand")
        if child and (allow_origin or allow_host):
            raise typer.BadParameter("Only the window talks to its own engine.", param_hint="--allow-origin")
        if child and (tls or tls_cert or tls_key):
            raise typer.BadParameter("The window and its engine are on one machine.", param_hint="--tls")
        policy = Policy(60 * unload_after, load_on_demand, options)
        if child:
            raise typer.Exit(run_child(chosen, kind, policy, access_log))
        adapters = adapters_of(adapter)
        allowed = Allowed(origins_of(allow_origin), hosts_of(allow_host))
        host = host or "127.0.0.1"
        secured = tls_of(tls, tls_cert, tls_key, host, allowed)
        code = run_server(host, port, chosen, kind, policy, adapters, fetch_pictures, allowed, secured, access_log)
        raise typer.Exit(code)


@app.command()
def doctor(
    model: Annotated[str, typer.Option(help=MODEL_HELP, show_default=False)] = "",
    device: DeviceOption = "auto",
    quantise: QuantiseOption = "none",
    context: ContextOption = None,
) -> None:
    """Show devices, free memory, versions, and which kernels are chosen and why others declined."""
    from engine.doors.cli.doctor import run_doctor

    with report_errors():
        options = load_options_of(quantise=quantise, context=context)
        run_doctor(path_or_name_of(model), device_of(device), options)


app.add_typer(models, name="models")
app.add_typer(gpu, name="gpu")
app.add_typer(keys, name="keys")
app.add_typer(mcp, name="mcp")


@app.command(
    "train-heads",
    help=f"Train {HEADS} for a model, on your own text. Ctrl-C saves; the same command goes on.",
)
def train_heads(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    kind: Annotated[str, typer.Option(help=f"{_KINDS} layers: choose the model's own.")],
    text: Annotated[
        list[Path], typer.Option(help="A file (.txt, .md, .jsonl with texts or chats) or a folder of them; repeatable.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write here instead of next to the model.", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="End after this time; 10 if nothing is said.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many steps.", show_default=False)] = None,
    heads: Annotated[int, typer.Option(min=1, max=16, help=f"How many {_SEVERAL} heads.")] = 4,
    rows: Annotated[int, typer.Option(min=4, help="Pieces of text to learn from, at most.")] = 4096,
    length: Annotated[int, typer.Option(min=32, help="Tokens of a piece, at most.")] = 256,
    distil: Annotated[
        bool, typer.Option("--own-words/--text-only", help="Let the model itself write half of the text.")
    ] = True,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="For what the model writes; its own if left out.", show_default=False)
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--fresh", help="Go on with an unfinished training, or begin again.", show_default=False),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="Begin with these heads, such as those of the model's last version.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same heads on the same machine.")] = 0,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    quantise: QuantiseOption = "none",
) -> None:
    known = [*(each.name for each in TRAINED), "layers"]
    if kind not in known:
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(known)}.", param_hint="--kind")
    chosen = (device_of(device), dtype_of(dtype), quantise_of(quantise))
    with report_errors():
        with importing():
            from engine.doors.cli.train import run_choose_layers, run_train_heads
            from engine.library.paths import resolve
            from engine.services.training.target import Opening
            from engine.services.training.train_heads import TrainingPlan

        opening = Opening(*chosen)
        path, _ = resolve(path_or_name_of(model), "")
        if kind == "layers":
            run_choose_layers(path, text, length, out, opening)
            return
        plan = TrainingPlan(
            model=path,
            kind=kind,
            text=tuple(text),
            out=out,
            minutes=10.0 if minutes is None and steps is None else minutes,
            steps=steps,
            heads=heads,
            rows=rows,
            length=length,
            temperature=temperature,
            distil=distil,
            seed=seed,
            resume=resume,
            start=start,
            opening=opening,
        )
        raise typer.Exit(run_train_heads(plan))


app.command()(bench)
app.command()(lab)
app.command()(compare)
app.command()(simulate)
app.command("quantise")(make_smaller)
app.add_typer(desktop, name="desktop")
app.command()(uninstall)
app.command(hidden=True)(operation)


def _open_model(arguments: list[str]) -> None:
    """`kvasir FILE.gguf` is the window with that model; returns where the command line is anything else."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return
    from engine.doors.cli.window import model_in, open_window

    if model := model_in(arguments, typer.main.get_group(app).commands):
        sys.exit(open_window(model))


def main() -> None:
    """The entry point: exit code 0, 1 for a failure with its sentence, 2 for wrong usage, 130 after Ctrl-C."""
    prepare_streams()
    leave_deleted_folder()
    packs.redirect(sys.argv)
    try:
        _open_model(sys.argv[1:])
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:  # before a command began
        sys.exit(130)


if __name__ == "__main__":
    main()
