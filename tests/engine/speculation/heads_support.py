"""A tiny target with a feature head on it, decoding by hand: the order of a step without scheduler, pool and tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.attention.registry import AttentionDispatcher
from engine.batch import ForwardOutput, SequenceRows
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.checkpoints.heads.read import read_eagle
from engine.checkpoints.load import Checkpoint, load_model
from engine.checkpoints.open import open_checkpoint
from engine.checkpoints.safetensors import TensorFiles
from engine.core.step import draws_of, rows_of
from engine.files import read_json
from engine.layers.numerics import Numerics
from engine.model_config.raw import RawConfig
from engine.models.arenas import new_store
from engine.models.base import CausalLM
from engine.models.heads.base import FeatureHead
from engine.models.heads.eagle import LEAST_LAYERS
from engine.models.heads.mtp import MIMO, MultiToken
from engine.options import RequestOptions
from engine.protocol import Sampling
from engine.request import Request
from engine.runner.buffers import powers_of_two
from engine.runner.runner import Runner
from engine.sampling.params import resolve
from engine.sampling.sampler import sample
from engine.scheduling.scheduler import Slice
from engine.speculation.base import NO_DRAFT, Ask, DraftTree, Seen
from engine.speculation.proposers.eagle import FeatureProposer
from engine.speculation.verify.verifier import verify
from tests.engine.core.requests_support import new_request

VOCABULARY, HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 48, 32, 40, 4, 2, 2
EOS = 47
SHAPE = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "float32",
}  # fmt: skip
PAGES = 40


def _layer(prefix: str, last: float, own_norm: bool, wide: int = 1) -> dict[str, Tensor]:
    """``last`` scales what the layer adds to the stream."""
    kv = HIDDEN * KV_HEADS // HEADS
    tensors = {
        "self_attn.q_proj": torch.randn(HIDDEN, wide * HIDDEN) * 0.3,
        "self_attn.k_proj": torch.randn(kv, wide * HIDDEN) * 0.3,
        "self_attn.v_proj": torch.randn(kv, wide * HIDDEN) * 0.3,
        "self_attn.o_proj": torch.randn(HIDDEN, HIDDEN) * last,
        "mlp.gate_proj": torch.randn(INNER, HIDDEN) * 0.3,
        "mlp.up_proj": torch.randn(INNER, HIDDEN) * 0.3,
        "mlp.down_proj": torch.randn(HIDDEN, INNER) * last,
        "post_attention_layernorm": torch.ones(HIDDEN),
    }
    if own_norm:
        tensors["input_layernorm"] = torch.ones(HIDDEN)
    return {f"{prefix}{name}.weight": tensor for name, tensor in tensors.items()}


def write(folder: Path, agreement: str) -> tuple[CausalLM, FeatureHead]:
    """A target and an EAGLE-1 head: "none", both random; or "full", where the next token follows from the last alone.

    There the target's layers add nothing, tokens have embeddings of mean square 1, and the head passes on the next
    token's: so its output is exactly what the target's output layer will read. "some": the layers add a little.
    """
    last = {"none": 0.3, "some": 0.04, "full": 0.0}[agreement]
    torch.manual_seed(1)
    table = torch.randn(VOCABULARY, HIDDEN)
    table = table / table.square().mean(-1, keepdim=True).sqrt()
    tensors = {"model.embed_tokens.weight": table, "model.norm.weight": torch.ones(HIDDEN),
               "lm_head.weight": torch.randn(VOCABULARY, HIDDEN) * 0.4}  # fmt: skip
    for layer in range(LAYERS):
        tensors |= _layer(f"model.layers.{layer}.", last, True)
    head = {"fc.weight": torch.randn(HIDDEN, 2 * HIDDEN) * 0.3, **_layer("layers.0.", last, False)}
    if agreement != "none":
        head["fc.weight"] = torch.cat((torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)), 1)
    return _opened(folder, tensors, head, LAYERS)


def write_eagle3(folder: Path) -> tuple[CausalLM, FeatureHead]:
    """A random target with as many layers as EAGLE-3 needs, and its head, which says every other token."""
    torch.manual_seed(2)
    said = VOCABULARY // 2
    head = {
        "fc.weight": torch.randn(HIDDEN, 3 * HIDDEN) * 0.3,
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.randn(said, HIDDEN) * 0.4,
        "d2t": torch.arange(said) + 1,
        **_layer("midlayer.", 0.3, True, wide=2),
    }
    return _opened(folder, _random_target(LEAST_LAYERS), head, LEAST_LAYERS, draft_vocab_size=said)


def write_mtp(folder: Path) -> tuple[CausalLM, FeatureHead]:
    """A random target with a multi-token layer of its own."""
    torch.manual_seed(3)
    tensors = _random_target(LAYERS) | _layer(MIMO.layer, 0.3, True)
    tensors |= {f"{MIMO.layer}{name}_layernorm.weight": torch.ones(HIDDEN) for name in ("token", "hidden", "final")}
    tensors[f"{MIMO.layer}input_proj.weight"] = torch.randn(HIDDEN, 2 * HIDDEN) * 0.3
    for name in [name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
        tensors[name.replace(".weight", ".bias")] = torch.randn(tensors[name].shape[0]) * 0.3
    _save(folder / "target", tensors, LAYERS, architectures=["MiMoForCausalLM"])
    checkpoint, model = _load(folder / "target")
    source = checkpoint.source(torch.device("cpu"), torch.float32, "4bit", Numerics())
    return model, MultiToken(model, source, MIMO)


def _random_target(layers: int) -> dict[str, Tensor]:
    tensors = {"model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN), "model.norm.weight": torch.ones(HIDDEN),
               "lm_head.weight": torch.randn(VOCABULARY, HIDDEN) * 0.4}  # fmt: skip
    for layer in range(layers):
        tensors |= _layer(f"model.layers.{layer}.", 0.3, True)
    return tensors


def _opened(
    folder: Path, target: dict[str, Tensor], head: dict[str, Tensor], layers: int, **values: Any
) -> tuple[CausalLM, FeatureHead]:
    """Both, saved and read again; ``values`` are further ones of the head's config.json."""
    _save(folder / "target", target, layers)
    _save(folder / "head", head, 1, **values)
    _, model = _load(folder / "target")
    config = RawConfig(read_json(folder / "head" / "config.json") or {}, folder / "head" / "config.json")
    return model, read_eagle(TensorFiles.open(folder / "head"), config, model)


def _save(folder: Path, tensors: dict[str, Tensor], layers: int, **values: Any) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPE | {"num_hidden_layers": layers} | values))
    save_file(tensors, folder / "model.safetensors")


def _load(folder: Path) -> tuple[Checkpoint, CausalLM]:
    checkpoint = open_checkpoint(folder, need_tokenizer=False)
    return checkpoint, load_model(checkpoint, torch.device("cpu"), torch.float32, numerics=Numerics())


class Recorder:
    """The head's runner, with a note of every pass."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.passes: list[list[SequenceRows]] = []

    @property
    def batch_seconds(self) -> float:
        return self.runner.batch_seconds

    def forward(self, rows: Sequence[SequenceRows], **options: Any) -> ForwardOutput:
        self.passes.append(list(rows))
        return self.runner.forward(rows, **options)


class Decoding:
    """Requests that decode side by side; what the engine does about pages is done by hand."""

    def __init__(self, model: CausalLM, head: FeatureHead, padded: bool = False, **settings: Any) -> None:
        """``padded``: the head's batches are padded as on a GPU."""
        self.model, self.head = model, head
        self.target = Runner(model, new_store(model.config, PAGES, torch.float32), AttentionDispatcher(model.numerics))
        self.store = head.new_store(PAGES)
        self.recorder = Recorder(
            Runner(head, self.store, AttentionDispatcher(), policy=powers_of_two if padded else None)
        )
        self.proposer = FeatureProposer(head, self.recorder, {EOS}, **settings)
        self.free = list(range(PAGES - 1, 0, -1))
        self.trees: dict[str, list[DraftTree]] = {}
        self.before: dict[str, list[list[int]]] = {}
        """The tokens that each of the trees goes on from."""

    def request(self, name: str, prompt: Sequence[int], sampling: Sampling | None = None, **options: Any) -> Request:
        params = resolve(sampling or Sampling(temperature=0.0), Sampling())
        chosen = RequestOptions(speculation="eagle", **options)
        self.trees[name], self.before[name] = [], []
        return new_request(name, prompt, params, chosen)

    def hold(self, request: Request, tokens: int) -> None:
        """Pages for so many tokens and not one more."""
        while len(request.pages) > pages_for(tokens):
            self.free.append(request.pages.pop())
        while len(request.pages) < pages_for(tokens):
            request.pages.append(self.free.pop())

    def send_away(self, request: Request, found: int = 0, drafts: int = 0) -> None:
        """Preempted: its pages go, and it comes back with the first ``found`` tokens on others, of which the head's
        arena has ``drafts``."""
        old = request.pages
        request.preemptions += 1
        request.cache.num_computed = found
        request.cache.drafts = request.cache.drafts._replace(head=drafts)
        request.cache.pages = []
        for page in old[: found // PAGE_SIZE]:
            request.pages.append(self.free.pop(0))
            self.target.kv.copy_page(page, request.pages[-1])
            if len(request.pages) <= drafts // PAGE_SIZE:
                self.store.copy_page(page, request.pages[-1])
        self.free += old

    def step(self, requests: Sequence[Request], budget: Callable[[Request], tuple[int, int]], chunk: int = 512) -> None:
        """One step: draft, compute, judge, extend, compact, see. ``budget`` gives nodes and depth."""
        pieces, asks = [], []
        for request in requests:
            rows = min(chunk, request.pending)
            last = rows == request.pending
            nodes, depth = budget(request) if request.pending == 1 else (0, 1 << 30)
            self.hold(request, request.num_computed + rows + nodes)
            pieces.append(Slice(request, rows, last, nodes))
            asks.append(Ask(request, nodes, request.num_computed + rows, depth))
        trees = self.proposer.propose(asks)
        seen = []
        rows_of_all = [rows_of(piece, tree) for piece, tree in zip(pieces, trees, strict=True)]
        out = self.target.forward(rows_of_all, want_hidden=self.proposer.needs_hidden)
        draws = [draws_of(p.sequence, tree) if p.last else [] for p, tree in zip(pieces, trees, strict=True)]
        drawn = iter(sample(out.logits, [draw for some in draws for draw in some]))
        end = 0
        for piece, tree, some in zip(pieces, trees, draws, strict=True):
            request, first = piece.sequence, end
            end += piece.rows + len(tree.tokens)
            kept, start = list(range(first, first + piece.rows)), request.num_computed
            request.cache.advance(piece.rows)
            if piece.last:
                verdict = verify(tree, [next(drawn) for _ in some])
                self.trees[request.id].append(tree)
                self.before[request.id].append(list(request.tokens))
                self.proposer.observe(request, tree, verdict.nodes)
                self._compact(request, verdict.nodes)
                request.progress.accepted += len(verdict.nodes)
                request.cache.tokens += [*(tree.tokens[node] for node in verdict.nodes), verdict.token]
                request.cache.advance(len(verdict.nodes))
                kept += [first + piece.rows + node for node in verdict.nodes]
            assert request.cache.drafts.head <= start + piece.rows
            seen.append(Seen(request, start, {layer: out.hidden[layer][kept] for layer in out.hidden}))
        self.proposer.see(seen)

    def decode(
        self,
        requests: Sequence[Request],
        count: int,
        budget: Callable[[Request], tuple[int, int]] = lambda request: (0, 1 << 30),
        chunk: int = 512,
    ) -> list[list[int]]:
        """All of them until each has so many new tokens; returns these."""
        while True:
            active = [request for request in requests if request.generated < count]
            if not active:
                return [request.tokens[request.prompt_length :][:count] for request in requests]
            self.step(active, budget, chunk)

    def _compact(self, request: Request, nodes: Sequence[int]) -> None:
        """Keys and values of accepted rows into consecutive slots, in both arenas."""

        def slots(indices: Sequence[int]) -> Tensor:
            return torch.tensor([request.pages[i // PAGE_SIZE] * PAGE_SIZE + i % PAGE_SIZE for i in indices])

        if nodes:
            base = request.num_computed
            src, dst = slots([base + node for node in nodes]), slots(range(base, base + len(nodes)))
            for store in (self.target.kv, self.store):
                store.move_slots(src, dst)


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, EOS, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def shapes(trees: Sequence[DraftTree]) -> list[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    return [(tree.tokens, tree.parents) for tree in trees if tree is not NO_DRAFT]
