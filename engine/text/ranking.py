"""Prompts that ask a model how well a document answers a query.

Source: the model card of Qwen3-Reranker (https://huggingface.co/Qwen/Qwen3-Reranker-0.6B), for causal models.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.text.tokenizer import Tokenizer

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""What the model is told to do where the client says nothing."""
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_ASKED = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class RankPrompt(NamedTuple):
    """Token ids of a query ``before`` its ``document``, of that, and of what stands ``after`` both.

    ``typed`` is the place from which on tokens are of BERT's second type; 0: none are.
    """

    before: list[int]
    document: list[int]
    after: list[int]
    typed: int = 0

    @property
    def ids(self) -> list[int]:
        return [*self.before, *self.document, *self.after]

    def cut(self, most: int) -> RankPrompt:
        """The same with the first ``most`` tokens of the document."""
        return self._replace(document=self.document[:most])


def pair_prompt(tokenizer: Tokenizer, query: str, document: str) -> RankPrompt:
    """The prompt of a cross-encoder, which reads both as two texts. Raises PromptError."""
    ids, second, typed = tokenizer.encode_pair(query, document)
    return RankPrompt(ids[: second.start], ids[second], ids[second.stop :], typed)


def judge_prompt(tokenizer: Tokenizer, query: str, document: str, instruction: str = "") -> RankPrompt:
    """The prompt of a causal model, which says "yes" or "no" next. Raises PromptError."""
    before, after = (tokenizer.encode(text, special=False) for text in (_BEFORE, _AFTER))
    text = _ASKED.format(instruction=instruction or INSTRUCTION, query=query, document=document)
    asked = tokenizer.encode(text, special=False)
    own = min(len(tokenizer.encode(document, special=False)), len(asked))
    return RankPrompt([*before, *asked[: len(asked) - own]], asked[len(asked) - own :], after)
