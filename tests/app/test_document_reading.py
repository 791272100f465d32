"""Files as text: what each kind gives, what is said of what is missing, and hostile ones that cost one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents import child, pdf, reading, zipped
from app.documents.markup import NESTED
from app.documents.passages import search, split
from app.documents.plan import ANSWER_SHARE, planned
from app.documents.prompt import with_documents
from app.documents.reading import read
from app.documents.records import (
    MOST_CHARS,
    DocumentFacts,
    DocumentPassage,
    DocumentUse,
    MessageDocument,
    PassageSearch,
    ReadText,
    document,
    of_text,
)
from tests.app import document_files as files
from tests.broken_models import check_sentence
from tests.kit.examples import examples

ROOT = Path(__file__).parents[2]
GERMAN = "Grüße aus Köln: die Straße wird für größere Züge täglich gesperrt.\n" * 4


def written(tmp_path: Path, name: str, data: bytes | str) -> Path:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    ("name", "data", "text", "facts"),
    [
        ("a.md", "# One\r\ntwo\n", "# One\ntwo\n", DocumentFacts("Markdown", 12, 0, 2)),
        ("a.py", "x = 1", "x = 1", DocumentFacts("Python", 5, 0, 1)),
        ("a.csv", "a;b\n1;2\n", "a;b\n1;2\n", DocumentFacts("CSV", 8, 0, 2)),
        ("LICENCE", "Do it.", "Do it.", DocumentFacts("Text", 6, 0, 1)),
        (
            "a.html",
            "<?xml version='1.0'?><title>T</title><script>no</script><!-- no --><h1>H</h1><p>a <b>b</b><ul><li>c</ul>"
            "<table><tr><th>d</th></tr><tr><td>e</td></tr></table><img src='http://x/y.png'>",
            "T\n\n# H\n\na **b**\n\n- c\n\n| d |\n| --- |\n| e |",
            DocumentFacts("HTML", 184, 0, 11),
        ),
        (
            "a.pdf",
            files.pdf(["First (1", "Second"]).replace(b"(First (1)", b"(First .1)"),
            "[page 1]\nFirst .1\n\n[page 2]\nSecond",
            DocumentFacts("PDF", 727, 2, 5, [0, 19]),
        ),
    ],
)
def test_each_kind_gives_its_text(
    tmp_path: Path, name: str, data: bytes | str, text: str, facts: DocumentFacts
) -> None:
    found = read(written(tmp_path, name, data))
    assert found.text == text
    assert msgspec.structs.replace(found.facts, bytes=facts.bytes) == facts


def test_word_and_books(tmp_path: Path) -> None:
    body = files.paragraph("A heading", "Heading1") + files.paragraph("Words &amp; more.")
    found = read(files.docx(tmp_path / "a.docx", body))
    assert (found.text, found.facts.kind, found.facts.notes) == ("# A heading\n\nWords & more.", "Word", [])
    chapters = {"one.xhtml": "<h1>One</h1><p>First.", "two.xhtml": "<p>Second.", "gone.xhtml": ""}
    found = read(files.epub(tmp_path / "a.epub", chapters))
    assert found.text == "# One\n\nFirst.\n\nSecond."
    assert (found.facts.pages, found.facts.starts) == (2, [0, 15])
    assert found.facts.notes == ["1 of 3 chapters are missing from the file."]


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("utf-16", ""),
        ("utf-32", ""),
        ("utf-16-le", "guessed: utf-16-le"),
        ("utf-16-be", "guessed: utf-16-be"),
        ("cp1252", "guessed: cp125"),
    ],
)
def test_encodings(tmp_path: Path, encoding: str, note: str) -> None:
    found = read(written(tmp_path, "a.txt", GERMAN.encode(encoding)))
    assert found.text == GERMAN
    assert [note in said for said in found.facts.notes] == ([True] if note else [])


@pytest.mark.parametrize(
    ("name", "data", "notes"),
    [
        ("a.pdf", files.pdf(["Text", None, None]), ["2 of 3 pages have no text: they are pictures."]),
        ("a.docx", files.pdf(["Text"]), ["It is a PDF file, though its name ends in .docx."]),
        ("a.pdf", "Only text", ["It is plain text, though its name ends in .pdf."]),
        ("a.html", "<div>" * 5000 + "deep", [NESTED]),
        ("a.txt", "x" * (MOST_CHARS + 7), ["Cut after 2,000,000 of 2,000,007 characters."]),
        ("a.txt", b"\xef\xbb\xbfgood \xff bad", ["1 sign could not be decoded."]),
    ],
)
def test_what_is_left_out_is_told(tmp_path: Path, name: str, data: bytes | str, notes: list[str]) -> None:
    assert read(written(tmp_path, name, data)).facts.notes == notes


def test_a_long_pdf_says_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "a.pdf", files.pdf(["Some words"] * 9))
    monkeypatch.setattr(pdf, "MOST_CHARS", 50)
    found = read(path)
    assert len(found.text) == 50
    assert found.facts.notes == ["Cut after 50 characters, on page 3 of 9."]
    monkeypatch.setattr(pdf, "MOST_CHARS", MOST_CHARS)
    monkeypatch.setattr(pdf, "MOST_PAGES", 2)
    assert read(path).facts.notes == ["Only the first 2 of 9 pages were read."]


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.txt", b"", "is empty"),
        ("a.md", b" \n\t ", "is empty"),
        ("a.html", b"<script>x</script>", "is empty"),
        ("a.txt", bytes(range(256)) * 20, "is not a text"),
        ("a.pdf", files.pdf(["secret"], encrypted=True), "is encrypted"),
        ("a.pdf", files.pdf([None, None]), "all its 2 pages are pictures"),
        ("a.pdf", files.pdf(["cut off"])[:150], "damaged or incomplete"),
        ("a.docx", b"PK\x03\x04 and nothing more", "damaged or incomplete"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(9), "old Office file"),
        ("a.rtf", b"{\\rtf1 x}", "RTF"),
        ("a.webp.txt", b"\x89PNG\r\n\x1a\n" + bytes(50), "is a picture"),
        ("a.gguf", b"GGUF" + bytes(50), "is a model"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, data: bytes, part: str) -> None:
    with pytest.raises(ValueError) as refused:
        read(written(tmp_path, name, data))
    check_sentence(str(refused.value), name, part)


def test_archives_that_are_none_of_ours(tmp_path: Path) -> None:
    for inside, part in (("xl/workbook.xml", "Excel"), ("content.xml", "OpenDocument"), ("a.txt", "is an archive")):
        with pytest.raises(ValueError) as refused:
            read(files.archive(tmp_path / "a.zip", {inside: "x"}))
        check_sentence(str(refused.value), part)
    with pytest.raises(ValueError, match="DRM"):
        read(files.epub(tmp_path / "a.epub", {"a": "x"}, {"META-INF/rights.xml": "x"}))
    with pytest.raises(ValueError, match="has no text"):
        read(files.docx(tmp_path / "a.docx", ""))
    entities = "".join(f'<!ENTITY e{at} "{f"&e{at - 1};" * 10}">' for at in range(1, 10))
    laughs = f'<!DOCTYPE w [<!ENTITY e0 "lol">{entities}]>'
    with pytest.raises(ValueError, match="damaged"):
        read(files.docx(tmp_path / "a.docx", files.paragraph("&e9;"), laughs))


def test_a_zip_bomb_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipped, "MOST_BYTES", 1 << 20)
    bomb = files.docx(tmp_path / "a.docx", files.paragraph("0" * (2 << 20)))
    assert bomb.stat().st_size < 10_000
    with pytest.raises(ValueError) as refused:
        read(bomb)
    check_sentence(str(refused.value), "a.docx", "unpacks to more than 1 MB")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="is a folder"):
        read(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="is not a file"):
            read(tmp_path / "pipe")
    monkeypatch.setattr(reading, "MOST_BYTES", 1 << 20)
    with pytest.raises(ValueError, match=r"has 2 MB, and a document can have 1 MB"):
        read(written(tmp_path, "a.txt", bytes((1 << 20) + 1)))


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The process, in which ``before`` was done."""
    script = f"import sys, time\nfrom app.documents import child, reading\n{before}\nsys.exit(child.main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)


def test_the_packaged_window_is_that_process_too(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "Some text")
    assert child.command()[-1] == "app.documents.child"
    done = subprocess.run(
        [sys.executable, "-m", "app", child.FLAG, "read", str(path)], capture_output=True, cwd=ROOT, timeout=120
    )
    assert msgspec.json.decode(done.stdout, type=ReadText).text == "Some text"


def test_the_process_answers_and_keeps_its_bounds(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "Some text")
    done = run("read", str(path))
    assert msgspec.json.decode(done.stdout, type=ReadText) == ReadText("Some text", DocumentFacts("Text", 9, 0, 1))
    slow = run("read", str(path), before="child.SECONDS = 0.1\nreading.read = lambda path: time.sleep(60)")
    assert (slow.returncode, slow.stdout) == (1, "")
    check_sentence(slow.stderr.strip().removeprefix("kvasir: "), "a.txt", "more than 0 seconds")
    odd = run("read", str(path), before="reading.read = lambda path: {}[path]")
    check_sentence(odd.stderr.strip().removeprefix("kvasir: "), "a.txt", "KeyError")
    gone = run("read", str(tmp_path / "b.txt"))
    check_sentence(gone.stderr.strip().removeprefix("kvasir: "), "b.txt is not there any more")


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(
            "reading.read = lambda path: bytearray(child.MEMORY_BYTES)",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such bound"),
        ),
        "child.bound_memory = print\nchild.MEMORY_BYTES = 10 << 20\nreading.read = lambda path: time.sleep(60)",
    ],
)
def test_a_file_that_takes_all_memory_is_given_up(tmp_path: Path, before: str) -> None:
    done = run("read", str(written(tmp_path, "a.txt", "Some text")), before=before)
    check_sentence(done.stderr.strip().removeprefix("kvasir: "), "a.txt", "MB of memory")


@examples(60)
@given(st.text(st.sampled_from("ab \n.漢字é\U0001f426"), max_size=4000))
def test_passages_cover_the_text(text: str) -> None:
    places = split(text)
    assert [start for start, _ in places] == sorted({start for start, _ in places})
    past = 0
    for start, end in places:
        assert start <= past < end
        past = end
    assert past == len(text)


MANUAL = "\n\n".join(f"Chapter {at}. {'Nothing of note happens here. ' * 30}" for at in range(40))


@pytest.mark.parametrize(
    ("hidden", "question"),
    [
        ("The golden keys are kept below the kitchen stairs.", "Where do I find the golden key?"),
        ("Der Schlüssel liegt unter der Treppe.", "Wo ist der Schlussel?"),
        ("我的电脑坏了。", "谁的电脑?"),
    ],
)
def test_the_passage_that_has_the_words_is_found(hidden: str, question: str) -> None:
    text = MANUAL.replace("Chapter 25.", f"Chapter 25. {hidden}")
    found = search(PassageSearch(text, question, 900))
    assert found.matched
    assert found.of == len(split(text))
    assert hidden in text[found.passages[0].start : found.passages[0].end]
    assert sum(each.end - each.start for each in found.passages) <= 900


def test_without_a_common_word_the_passages_are_from_all_over() -> None:
    found = search(PassageSearch(MANUAL, "xyzzy?", 4000))
    assert not found.matched
    assert found.passages[0].start == 0
    assert found.passages[-1].start > len(MANUAL) // 2
    assert [each.number for each in found.passages] == list(range(1, len(found.passages) + 1))
    assert search(PassageSearch(MANUAL, "", 2000)).passages
    assert search(PassageSearch("short", "?!", 2000)).passages == [DocumentPassage(1, 0, 5)]


@examples(200)
@given(st.integers(1, 200_000), st.integers(0, 100_000), st.lists(st.integers(1, 300_000), max_size=6))
def test_a_plan_leaves_room_for_the_answer(context: int, base: int, tokens: list[int]) -> None:
    plan = planned(context, base, tokens)
    others = plan.whole.count(False)
    sent = sum(count for count, whole in zip(tokens, plan.whole, strict=True) if whole) + others * plan.passages
    assert plan.tokens == sent
    assert sent <= max(0, context - base - int(min(2048, ANSWER_SHARE * context)))
    if others:
        assert min(count for count, whole in zip(tokens, plan.whole, strict=True) if not whole) >= max(
            (count for count, whole in zip(tokens, plan.whole, strict=True) if whole), default=0
        )


def test_a_document_stands_before_the_question_in_one_frame() -> None:
    whole = MessageDocument(of_text('a "b".txt', "Text."), DocumentUse())
    assert with_documents("Why?", [whole]) == "<document name=\"a 'b'.txt\">\nText.\n</document>\n\nWhy?"
    paged = document("c.pdf", "One. Two. Three.", DocumentFacts("PDF", 9, 3, starts=[0, 5, 10]))
    parts = DocumentUse([DocumentPassage(1, 0, 5), DocumentPassage(2, 10, 16)], 3)
    said = with_documents("Why?", [whole, MessageDocument(paged, parts)])
    assert '<passages of="c.pdf">\n[1] page 1\nOne.\n\n[2] page 3\nThree.\n</passages>\n\n' in said
    assert said.endswith("such as [1].\n\nWhy?")
