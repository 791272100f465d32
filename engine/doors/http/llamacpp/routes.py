"""HTTP in the shapes of llama.cpp's server: /completion, and /infill for editors, whole or as server-sent events, and
/props and /slots.

Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.decoding.scheduling.plan import MAX_RUNNING
from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded, named
from engine.doors.http.llamacpp.types import (
    RANDOM,
    AnswersOut,
    Defaults,
    InfillIn,
    LlamaCompletionIn,
    LlamaIn,
    PartOut,
    Props,
    Slot,
    settings_of,
)
from engine.doors.http.llamacpp.writer import AnswerWriter, error_of, events, whole
from engine.doors.http.openai.routes import OpenAIRoutes
from engine.doors.http.openai.types import MOST_ANSWERS, CompletionIn
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.pictures import fetch_pictures
from engine.doors.http.prompts import MARK, Prompt, mixed_ids, pictured, prompts_of, words_of
from engine.doors.http.service import HttpService, StreamedAnswer, adapter_of, json_response, while_there
from engine.doors.security import HttpRefusal
from engine.library import paths as config
from engine.protocol import ChatMessage, Sampling, keys
from engine.services.answers.answering import in_thread
from engine.services.answers.overflow import check_length
from engine.services.answers.pictures import pictured_text
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.residency import Lease
from engine.text.infill import OtherFile

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

_Answer = Callable[[Request, bytes, Lease], Awaitable[Response]]


class LlamaCppRoutes:
    """The dialect of editors' plug-ins and programs that know llama.cpp's server."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._openai = OpenAIRoutes(service)

    def routes(self) -> list[Route]:
        streams = Streamed("text/event-stream", PartOut)
        complete, either = self._serving(self._complete), self._serving(self._complete_either)
        return [
            Served("/completion", complete, ["POST"], [LlamaCompletionIn], AnswersOut, streams),
            *(
                Served(path, either, ["POST"], [LlamaCompletionIn, CompletionIn], dict[str, Any], streams)
                for path in ("/completions", "/completions/")
            ),
            Served("/infill", self._serving(self._infill), ["POST"], [InfillIn], AnswersOut, streams),
            Served("/props", self._serving(self._props), gives=Props),
            Served("/slots", self._serving(self._slots), gives=list[Slot]),
        ]

    def _serving(self, answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
        return self._service.serving(answer, _refused, _error)

    async def _complete_either(self, request: Request, body: bytes, use: Lease) -> Response:
        """Answer as OpenAI's interface does where a model is named, which its clients always do."""
        if "model" in named(body):
            return await self._openai.completed(request, body, use)
        return await self._complete(request, body, use)

    async def _complete(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, LlamaCompletionIn)
        if self._service.fetches:
            await while_there(request, fetch_pictures(pictured(wanted.prompt, "prompt")))
        given = prompts_of(wanted.prompt, "prompt")
        if not given or not all(given):
            raise BadField("prompt", "The prompt is empty. Write something first.")
        if len(given) > MOST_ANSWERS:
            raise BadField(
                "prompt", f"There are {len(given):,} prompts, and at most {MOST_ANSWERS} are read. Send fewer."
            )
        if wanted.return_progress and len(given) > 1:
            raise BadField("return_progress", "return_progress goes with one prompt. Send the others by themselves.")

        async def prompts(asked: AnswerRequest, loaded: LoadedModel) -> list[PromptRequest]:
            return [await self._prompt(asked, each, loaded) for each in given]

        return await self._answer(request, wanted, use, prompts)

    async def _prompt(self, asked: AnswerRequest, given: Prompt, loaded: LoadedModel) -> PromptRequest:
        assert loaded.files is not None
        tokenizer = loaded.files.tokenizer
        if isinstance(given, str):
            return (await self._service.prompt(asked._replace(prompt=given), loaded))[0]
        if isinstance(given, ChatMessage):
            read = partial(pictured_text, loaded, given, MARK, loaded.card.context)
            return await self._service.prompt_of(asked, await in_thread(self._service.hub, [given], read), loaded)
        words = words_of(given)
        check_length(words, tokenizer, loaded.card.context)
        ids = await in_thread(self._service.hub, words, partial(mixed_ids, tokenizer, given))
        return await self._service.prompt_of(asked, PromptTokens(ids), loaded)

    async def _infill(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, InfillIn)
        files = [OtherFile(each.filename, each.text) for each in wanted.input_extra]

        async def prompts(asked: AnswerRequest, loaded: LoadedModel) -> list[PromptRequest]:
            before = wanted.input_prefix + wanted.prompt
            return [await self._service.infill(asked, before, wanted.input_suffix, loaded, files)]

        return await self._answer(request, wanted, use, prompts)

    async def _answer(
        self,
        request: Request,
        wanted: LlamaIn,
        use: Lease,
        prompts: Callable[[AnswerRequest, LoadedModel], Awaitable[Sequence[PromptRequest]]],
    ) -> Response:
        await while_there(request, use.model(wanted.model))
        loaded = self._service.loaded(wanted.model)
        assert loaded.files is not None
        sampling = wanted.sampling(loaded.files.tokenizer, loaded.card.eos_ids)
        adapter = adapter_of(loaded, wanted.model)
        switches = {} if wanted.cache_prompt else {keys.PREFIX_CACHE: False}
        asked = AnswerRequest(
            "",
            sampling,
            adapter=adapter,
            structured=wanted.structured(),
            optimisations=switches,
            service=wanted.service,
        )
        made = await prompts(asked, loaded)
        model = adapter or loaded.card.name
        writers = [
            AnswerWriter(number, wanted, sampling, loaded, model, prompt.command.prompt_ids)
            for number, prompt in enumerate(made)
        ]

        async def write(stream: Stream) -> Response:
            if wanted.stream:
                body = events(stream, writers, wanted.response_fields)
                return StreamedAnswer(body, "text/event-stream", {}, stream, use)
            return json_response(await while_there(request, whole(stream, writers, wanted.response_fields)))

        return await self._service.answer(request, made, wanted.stream, write)

    async def _props(self, request: Request, body: bytes, use: Lease) -> Response:
        loaded = self._service.loaded("")
        assert loaded.files is not None
        card, template = loaded.card, loaded.files.template
        return json_response(
            Props(
                Defaults(card.context, settings_of(Sampling(), card.sampling, RANDOM)),
                MAX_RUNNING,
                card.name,
                loaded.command.path,
                {"vision": loaded.pictures.processor is not None, "audio": False, "video": False},
                template.source,
                template.special_tokens.get("bos_token", ""),
                template.special_tokens.get("eos_token", ""),
                f"kvasir-{config.version()}",
            )
        )

    async def _slots(self, request: Request, body: bytes, use: Lease) -> Response:
        context, busy = self._service.loaded("").card.context, self._service.hub.answering
        return json_response([Slot(number, context, number < busy) for number in range(MAX_RUNNING)])


def _refused(error: Exception) -> Response:
    return _error(refusal_of(error, "prompt", InfillIn.__struct_fields__))


def _error(refusal: HttpRefusal) -> Response:
    return JSONResponse(error_of(refusal), refusal.status)
