"""Errors over HTTP, in the status and the words that OpenAI's clients know."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.http.fields import BadField
from engine.doors.security import HttpRefusal, error_response
from engine.services.answers.refused import Refused, shortened
from engine.text.template import PromptError

SERVED = (
    "/v1/models, /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/rerank, Anthropic's "
    "/v1/messages, and Ollama's /api/chat, /api/generate, /api/embed and /api/tags"
)
FAILURES = (Refused, PromptError, BadField)
_STATUS = {
    "body_timeout": 408,
    "cancelled": 503,
    "error": 500,
    "internal": 500,
    "item_not_found": 404,
    "load_failed": 503,
    "memory": 503,
    "model_not_found": 404,
    "no_model": 503,
    "no_summary": 500,
    "previous_response_not_found": 404,
    "rate_limit_exceeded": 429,
    "response_not_found": 404,
    "stopping": 503,
    "too_large": 413,
    "unsupported_encoding": 415,
}
_CODES = {"prompt_too_long": "context_length_exceeded"}
_PARAMS = {
    "bad_effort": "reasoning_effort",
    "bad_structure": "response_format",
    "bad_tool": "tools",
    "item_not_found": "input",
    "model_not_found": "model",
    "previous_response_not_found": "previous_response_id",
}


def refusal_of(error: Exception, prompt: str = "", fields: tuple[str, ...] = ()) -> HttpRefusal:
    """``error`` is one of FAILURES; ``prompt`` is what the request calls its prompt, ``fields`` are all it can have."""
    text = str(error)
    if isinstance(error, BadField):
        return HttpRefusal(400, "invalid_value", text, error.param)
    code = error.code if isinstance(error, Refused) else "bad_prompt"
    if code in ("bad_picture", "bad_prompt", "no_pictures", "prompt_too_long"):
        param = prompt or None
    else:
        first = text.partition(" ")[0]  # sentences about sampling begin with the name of the parameter
        param = _PARAMS.get(code) or (first if first in fields else None)
    figures = error.figures if isinstance(error, Refused) else {}
    return HttpRefusal(_STATUS.get(code, 400), _CODES.get(code, code), text, param, figures)


async def not_served(request: Request, error: Exception) -> Response:
    """No such address, or not by this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refusal = HttpRefusal(405, "method_not_allowed", f"{request.url.path} is not served by {request.method}.")
    else:
        path = shortened(request.url.path)
        refusal = HttpRefusal(404, "unknown_url", f"There is no {path} here. Served are {SERVED}.")
    response = error_response(refusal)
    if error.status_code == 405:
        response.headers["allow"] = ", ".join(_methods(request))
    return response


def _methods(request: Request) -> list[str]:
    """The methods of all routes that have the address of a request; an address of its own comes before a pattern."""
    path = request.url.path
    routes = [each for each in request.app.routes if isinstance(each, Route) and each.path_regex.match(path)]
    return sorted({method for route in routes if route.path == routes[0].path for method in route.methods or ()})


async def failed(request: Request, error: Exception) -> Response:
    """The response to an unexpected error; the log has its traceback."""
    response = error_response(
        HttpRefusal(500, "internal", f"That failed inside the engine ({error}). The log has the details.")
    )
    response.headers["connection"] = "close"  # the server closes it; a client that kept it would send in vain
    return response
