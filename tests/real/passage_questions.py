"""Questions about the documentation whose answers are known: each with words that stand where it is answered."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """``page`` of docs; a passage that holds ``answer`` is a hit. ``other``: it is asked in other words than it is
    answered in."""

    page: str
    text: str
    answer: str
    other: bool


def _asked(page: str, other: bool, *pairs: tuple[str, str]) -> list[Question]:
    return [Question(page, text, answer, other) for text, answer in pairs]


QUESTIONS = [
    *_asked(
        "using.md",
        True,
        ("Can I undo throwing away a conversation?", "deletes with undo"),
        ("How do I get rid of moving effects in the interface?", '"Reduced motion" has switches and panels'),
        ("Will my half-written text survive closing the program?", "What you typed and did not send stays with its"),
        ("Can the program talk to me in my mother tongue, Deutsch?", "The window speaks English or German"),
        ("Is my dialogue lost when the electricity fails?", "survive a crash of either process"),
        ("Can somebody else on this PC spy on my conversations?", "they are not encrypted"),
        ("I sit behind a company firewall. How do I fetch anything?", "Proxies and certificates are those of"),
        ("My eyes are weak, how do I get bigger letters?", "make all text larger and smaller"),
        ("Does it work for blind people?", "Screen readers name all that Tab reaches"),
        ("Who authored each word, the big network or its helper?", "colours the words of all answers by who wrote"),
        ("My dialogue has become too long. What is done about it?", '"Stop" ends the answer and says so'),
        ("Replies are sluggish. How do I find the culprit?", "opens a card about the last seconds"),
        ("Put everything I fetched onto a different drive", "all of it is moved to another disk"),
        ("May two of my AIs reply at the same moment?", "Two models of this computer cannot answer at once"),
        ("How do I bring my old conversations over from ChatGPT?", "OpenAI's export (`conversations.json`"),
        ("The LLM goes round in circles, saying the same again and again", "it stops loops"),
        ("Shrink a network permanently to save storage", "writes a smaller model once and for all"),
        ("Teach small extra predictors at home", "heads can be trained on this machine"),
        ("How are dollar amounts told apart from equations?", "are left alone. What you select is copied as LaTeX"),
        ("Does it report anything about me to the website of models?", "The hub is asked for what you asked for and"),
    ),
    *_asked(
        "using.md",
        False,
        ("What does KIVI keep of the last 128 tokens?", "| precision: KIVI |"),
        ("What does min-p remove?", "- **Min-p**"),
        ("Where do I put the mmproj file of a GGUF model that sees pictures?", "mmproj-….gguf"),
        ("Which key renames the chat on screen?", "F2 renames the chat on screen"),
        ("What does the command palette find?", "Ctrl-K opens the command palette"),
        ("Are keys and passwords hidden in the log?", "Keys and passwords are hidden in the file"),
        ("What does Hadamard rotation of keys do?", "**Hadamard rotation of keys** spreads"),
        ("What is the error of normally distributed weights with nf4?", "9.2 % with `nf4`"),
        ("How long are packed weights kept on disk?", "The packed weights are kept on disk"),
        ("What is in the folder of a LoRA adapter?", "A LoRA adapter is a folder with"),
        ("What does --rotate spread?", "`--rotate` first spreads channels"),
        ("After how many rounds of calls does the chat wait for me?", "rounds in a row the chat waits for you"),
        ("Where is the assistant of a Gemma 4 found by a load?", "heads/assistant` of the model"),
        ("Which sample does rejection sampling draw?", "draws another sample from the same probabilities"),
        ("How is a table copied as CSV?", "*Copy as CSV* below it"),
    ),
    *_asked(
        "inside.md",
        True,
        ("What keeps a newcomer's brief request from queueing behind a huge one?", "While a prompt waits that is at"),
        ("How does the software hand RAM to the operating system again?", "Memory goes back with what held it"),
        ("Why does drawing at random come out alike twice?", "One verifier with keyed noise"),
        ("What happens when the graphics card breaks down halfway?", "After a kernel failed every later call"),
        ("Could one machine take in the input and a second one compose the reply?", "An answer can be begun by one"),
    ),
    *_asked(
        "inside.md",
        False,
        ("What is a Lease of the model?", "is a `Lease` from its arrival"),
        ("What do direct launches remember of Triton?", "**Direct launches.**"),
        ("When is a shape captured in a CUDA graph?", "A shape is captured in an"),
        ("What does a LoRA adapter's number do in a step?", "A request carries the number of its adapter"),
        ("How many tokens does a page have?", "One page pool** of 16-token pages"),
    ),
]
