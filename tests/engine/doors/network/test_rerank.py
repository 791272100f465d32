"""Documents ranked for a query, in the shapes of Cohere, Jina, vLLM, llama.cpp and text-embeddings-inference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from engine.doors.http.embedding import MOST_INPUTS
from engine.text.ranking import judge_prompt
from tests.engine.doors.network.conftest import Running
from tests.engine.doors.network.fake import FakeEngine, embedding

QUERY, DOCUMENTS = "which?", ["abc", "Grüße", "abc def", "de"]
RERANK = ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking/"]


def ranking(engine: FakeEngine) -> None:
    """From now on its model is one that ranks."""
    engine.pooling, engine.ranks, engine.context = "last", True, 512
    engine.loaded = engine._model("/models/tiny")


@pytest.fixture
def ranked(running: Running, http: httpx.Client) -> httpx.Client:
    ranking(running.engine)
    return http


@pytest.fixture(scope="module")
def refused(refusing: Running) -> Iterator[httpx.Client]:
    ranking(refusing.engine)
    with refusing.http() as client:
        yield client


def tokens(running: Running, query: str, document: str, instruction: str = "") -> list[int]:
    return judge_prompt(running.engine.loaded.files.tokenizer, query, document, instruction).ids


def expected(running: Running, pairs: Sequence[tuple[str, str]]) -> list[float]:
    logits = [float(embedding(tokens(running, *pair))[0]) for pair in pairs]
    return [1 / (1 + math.exp(-logit)) for logit in logits]


@pytest.mark.parametrize("path", RERANK)
def test_the_best_first(ranked: httpx.Client, running: Running, path: str) -> None:
    given = [DOCUMENTS[0], {"text": DOCUMENTS[1], "id": 7}, *DOCUMENTS[2:]]
    body = {"model": "tiny", "query": QUERY, "documents": given, "user": "me"}
    done = ranked.post(path, json=body).raise_for_status().json()
    scores = expected(running, [(QUERY, document) for document in DOCUMENTS])
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    assert [each["index"] for each in done["results"]] == order
    np.testing.assert_allclose([each["relevance_score"] for each in done["results"]], sorted(scores, reverse=True))
    assert [each["document"] for each in done["results"]] == [{"text": DOCUMENTS[number]} for number in order]
    count = sum(len(tokens(running, QUERY, document)) for document in DOCUMENTS)
    assert done["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert (done["model"], done["object"], done["id"].startswith("rerank-")) == ("tiny", "list", True)
    assert {command.pooling for command in running.asked} == {"last"}
    for number, least in ((2, 2), (99, 4), (0, 4), (None, 4)):
        less = ranked.post(path, json=body | {"top_n": number, "return_documents": False}).json()
        assert [set(each) for each in less["results"]] == [{"index", "relevance_score"}] * least
        assert less["results"][0]["index"] == order[0]


def test_logits_and_an_instruction(ranked: httpx.Client, running: Running) -> None:
    body = {"query": QUERY, "documents": "abc", "use_activation": False, "instruction": "Find it"}
    (found,) = ranked.post("/v1/rerank", json=body).raise_for_status().json()["results"]
    logit = float(embedding(tokens(running, QUERY, "abc", "Find it"))[0])
    assert found["relevance_score"] == pytest.approx(logit)


def test_the_shape_of_text_embeddings_inference(ranked: httpx.Client, running: Running) -> None:
    body = {"query": QUERY, "texts": DOCUMENTS, "truncate": True, "truncation_direction": "Right"}
    done = ranked.post("/rerank", json=body).raise_for_status().json()
    scores = expected(running, [(QUERY, document) for document in DOCUMENTS])
    assert [each["score"] for each in done] == pytest.approx(sorted(scores, reverse=True))
    assert all(set(each) == {"index", "score"} for each in done)
    (best,) = ranked.post("/rerank", json=body | {"top_n": 1, "return_text": True, "raw_scores": True}).json()
    assert best["text"] == DOCUMENTS[done[0]["index"]]
    assert 1 / (1 + math.exp(-best["score"])) == pytest.approx(max(scores))


@pytest.mark.parametrize(
    ("first", "second"), [("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")]
)
@pytest.mark.parametrize("queries", [QUERY, [QUERY], ["which?", "what?"]])
def test_scores_in_their_order(
    ranked: httpx.Client, running: Running, first: str, second: str, queries: str | list[str]
) -> None:
    documents = [*DOCUMENTS[:2]]
    done = ranked.post("/score", json={first: queries, second: documents}).raise_for_status().json()
    asking = queries if len(queries) == 2 else [QUERY, QUERY]
    scores = expected(running, list(zip(asking, documents, strict=True)))
    assert [each["score"] for each in done["data"]] == pytest.approx(scores)
    assert [(each["index"], each["object"]) for each in done["data"]] == [(0, "score"), (1, "score")]
    assert (done["model"], done["object"], done["usage"]["prompt_tokens"] > 0) == ("tiny", "list", True)


def test_documents_are_cut_off_where_that_is_asked_for(ranked: httpx.Client, running: Running) -> None:
    long = "abc " * 400
    body: dict[str, Any] = {"query": QUERY, "documents": ["abc", long]}
    whole = ranked.post("/v1/rerank", json=body)
    error = whole.json()["error"]
    assert (whole.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "documents")
    assert "documents[1] has" in error["message"]
    assert "set truncate_prompt_tokens" in error["message"]
    assert not running.asked
    fixed = len(tokens(running, QUERY, ""))
    for limit, wanted in ((-1, 512), (fixed + 9, fixed + 9)):
        running.engine.seen.clear()
        ranked.post("/v1/rerank", json=body | {"truncate_prompt_tokens": limit}).raise_for_status()
        assert [len(command.prompt_ids) for command in running.asked][1] == wanted
    running.engine.seen.clear()
    ranked.post("/v1/rerank", json=body | {"max_tokens_per_doc": 20}).raise_for_status()
    assert len(running.asked[1].prompt_ids) <= fixed + 20


@pytest.mark.slow
def test_a_thousand_documents(ranked: httpx.Client, running: Running) -> None:
    documents = [f"a{number}" for number in range(1000)]
    done = ranked.post("/v1/rerank", json={"query": "b", "documents": documents, "top_n": 3}).raise_for_status().json()
    scores = expected(running, [("b", document) for document in documents])
    assert [each["relevance_score"] for each in done["results"]] == pytest.approx(sorted(scores, reverse=True)[:3])


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        ("/v1/rerank", {"documents": ["abc"]}, "query", "missing"),
        ("/v1/rerank", {"query": "", "documents": ["abc"]}, "query", "query is empty"),
        ("/v1/rerank", {"query": 7, "documents": ["abc"]}, "query", "not understood"),
        ("/v1/rerank", {"query": "a"}, "documents", "no documents"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents", "no documents"),
        ("/v1/rerank", {"query": "a", "documents": None}, "documents", "no documents"),
        ("/v1/rerank", {"query": "a", "documents": 123}, "documents", "not understood"),
        ("/v1/rerank", {"query": "a", "documents": [1, 2]}, "documents[0]", "not understood"),
        ("/v1/rerank", {"query": "a", "documents": [{"image": "b"}]}, "documents[0].text", "not understood"),
        ("/v1/rerank", {"query": "a", "texts": [7]}, "texts[0]", "not understood"),
        ("/v1/rerank", {"query": "a", "documents": ["b"] * (MOST_INPUTS + 1)}, "documents", "Send fewer"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n", "not understood"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "max_tokens_per_doc": -5}, "max_tokens_per_doc", "not under"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "topn": 1}, "topn", "Did you mean 'top_n'?"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "truncate_prompt_tokens": 513}, "truncate_prompt_tokens",
         "request a smaller truncation size"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "truncate_prompt_tokens": 0}, "truncate_prompt_tokens",
         "is not among 1 to 512"),
        ("/v1/rerank", {"query": "abc " * 400, "documents": ["b"], "truncate_prompt_tokens": -1}, "documents",
         "reduce the length of the input prompt."),
        ("/v1/score", {"queries": "a"}, "documents", "nothing to score"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1", "text_1 are 2 and text_2 3"),
        ("/v1/score", {"text_1": ["a", ""], "text_2": ["a", "b"]}, "query", "query is empty"),
    ],
)  # fmt: skip
def test_a_refusal(refused: httpx.Client, path: str, body: Any, param: str, said: str) -> None:
    answer = refused.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert said in error["message"]


def test_strangers_and_other_models(refused: httpx.Client) -> None:
    body = {"query": "a", "documents": ["b"]}
    assert refused.post("/v1/rerank", json=body | {"model": "other"}).status_code == 404
    for path in ("/v1/rerank", "/score"):
        assert refused.post(path, json=body, headers={"Authorization": ""}).status_code == 401


def test_only_a_model_that_is_made_for_it_ranks_and_it_makes_no_embeddings(
    http: httpx.Client, running: Running
) -> None:
    body = {"query": "a", "documents": ["b"]}
    for path, given in (("/v1/rerank", body), ("/v1/score", {"queries": "a", "documents": "b"})):
        answer = http.post(path, json=given)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_rerank")
        assert "tiny is not made to rank documents. Load a reranker" in answer.json()["error"]["message"]
    ranking(running.engine)
    assert http.post("/v1/rerank", json=body).status_code == 200
    assert http.get("/v1/models").json()["data"][0]["capabilities"] == ["rerank"]
    assert http.post("/api/show", json={"model": "tiny"}).json()["capabilities"] == ["rerank"]
    assert "no embeddings" in http.post("/api/embed", json={"model": "tiny", "input": "a"}).json()["error"]


def test_an_encoder_takes_no_instruction(ranked: httpx.Client, running: Running) -> None:
    running.engine.loaded.encodes = True
    body = {"query": "a", "documents": ["b"], "instruction": "Find it"}
    assert ranked.post("/v1/rerank", json=body).json()["error"]["param"] == "instruction"
    ranked.post("/v1/rerank", json=body | {"instruction": ""}).raise_for_status()
    (command,) = running.asked
    found = running.engine.loaded.files.tokenizer.encode_pair("a", "b")
    assert (list(command.prompt_ids), command.second) == (found.ids, found.typed)
