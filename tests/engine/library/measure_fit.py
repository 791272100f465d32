"""What a fit predicts next to what is then measured: bytes held, decoding and reading. Prints a table.

    OMP_NUM_THREADS=2 python -m tests.engine.library.measure_fit [ROOT] [ROUNDS]

Models of random weights are made under ROOT. Each is planned without any runs, so that its speed comes from a trial of
some layers, and measured through the engine in turn with that trial, ROUNDS times; the best of each, since other
programs only ever slow them down.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from engine.loading.memory.environment import bound_spinning

bound_spinning()

import torch  # noqa: E402

from engine.decoding.telemetry import runs  # noqa: E402
from engine.loading.advice.fit import Asked, fit_of  # noqa: E402
from engine.loading.memory.bandwidth import known  # noqa: E402
from engine.protocol import LoadOptions, Sampling, keys  # noqa: E402
from engine.services.client import EngineClient, whole_steps  # noqa: E402
from engine.services.experiments.workloads.shapes import Shape, write_tokenizer  # noqa: E402
from tests.engine.library.fit_models import MAKERS, loaded  # noqa: E402

WIDE = Shape("wide", layers=12, hidden=1024, ffn=3072, heads=16, kv_heads=4, vocabulary=32000, context=2048)
OPTIONS = LoadOptions(context=2048)
PROMPT, ANSWER = 128, 40


def hybrid(root: Path) -> Path:
    """Qwen3.5's shape, 0.15 B in bf16: three of four layers carry states."""
    import transformers

    folder = root / "hybrid-bf16"
    if (folder / "tokenizer.json").exists():
        return folder
    config = transformers.Qwen3_5TextConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=2, head_dim=128, linear_num_key_heads=8, linear_num_value_heads=16,
        linear_key_head_dim=128, linear_value_head_dim=128, max_position_embeddings=2048, eos_token_id=1,
        bos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.Qwen3_5ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    write_tokenizer(folder, 32000)
    return folder


MODELS: dict[str, Callable[[Path], Path]] = {
    "bf16": lambda root: MAKERS["bf16"](WIDE, root),
    "GPTQ, 16-bit head": lambda root: MAKERS["GPTQ"](WIDE, root),
    "NF4": lambda root: MAKERS["NF4"](WIDE, root),
    "GGUF Q4_K_M": lambda root: MAKERS["Q4_K_M"](WIDE, root),
    "hybrid, bf16": hybrid,
}


def measured(client: EngineClient, number: int) -> tuple[float, float]:
    """Tokens a second of decoding and of reading a prompt."""
    sampling = Sampling(temperature=0.0, max_tokens=ANSWER, ignore_eos=True, seed=0)
    answer = client.together([WIDE.prompt(PROMPT, number)], sampling, {keys.SPECULATION: "off"})[0]
    step = min(step.duration for step in whole_steps(answer.steps, 1))
    row = min(step.duration / step.rows.prefill for step in answer.steps if step.rows.prefill >= runs.LEAST_ROWS)
    return 1 / step, 1 / row


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def off(predicted: float, found: float) -> str:
    return f"{predicted / found - 1:+.0%}"


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir()) / "kvasir-fit"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    say("| model | predicted, MB | held, MB | | decode | measured | | reading | measured | |")
    say("|" + " --- |" * 10)
    for name, make in MODELS.items():
        path = make(root)
        os.environ["KVASIR_HOME"] = tempfile.mkdtemp(dir=root)
        with loaded(path, OPTIONS) as (client, held):
            real, tried = [], []
            for number in range(rounds):
                known.clear()
                runs.file().unlink(missing_ok=True)
                report = fit_of(path, Asked(options=OPTIONS))
                tried.append((report.decode, report.prefill))
                real.append(measured(client, number))
        bytes_ = report.fit.weights + report.fit.kv + report.fit.states
        decode, read = (max(each[place] for each in tried) for place in (0, 1))
        is_decode, is_read = (max(each[place] for each in real) for place in (0, 1))
        say(
            f"| {name} | {bytes_ / 1e6:,.1f} | {held / 1e6:,.1f} | {bytes_ / held - 1:+.1%} "
            f"| {decode:.1f} | {is_decode:.1f} | {off(decode, is_decode)} "
            f"| {read:.0f} | {is_read:.0f} | {off(read, is_read)} |"
        )


if __name__ == "__main__":
    main()
