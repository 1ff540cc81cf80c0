"""The page of a session: all of it is there, nothing in it is markup but what was made here, nothing is fetched."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.records.message import Message
from agentrun.records.timeline import RunRecord, timeline_of
from agentrun.render.html import page

# covers A42 A52: what is unresolved is on the page as well
HOSTILE = (
    "</script></pre></title></style><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\">"
    "<svg/onload=alert(1)> ' \" & &lt; \x1b[2J\u202e\u2066\u200b\x00\ufeff\x9b"
)
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "h1", "h2", "p", "span", "b"),
    *("code", "pre", "bdi", "time", "div", "a", "i", "ol", "ul", "li", "details", "summary", "article"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "id", "href", "style", "title", "datetime", "dir"),
    *("aria-hidden", "aria-label", "open"),
}
EMPTY = {"meta", "br", "hr"}


class Read(html.parser.HTMLParser):
    """A page as a strict reader sees it: its text, and whether all is well formed and of our own making."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS, tag
        assert {name for name, _ in attrs} <= ATTRIBUTES, attrs
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    def all(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.elements
            if name == tag and (not kind or kind in (found.get("class") or "").split())
        ]


def record(run: Any, report: str | None = None, **seen: Any) -> RunRecord:
    return RunRecord(run.detail(report, **seen), timeline_of(run.events))


def made(run: Any, report: str | None = None, *, title: str = "last night", loose: tuple[Message, ...] = ()) -> str:
    return "".join(page(run.session(title), loose, [record(run, report)], run.now))


def test_all_of_a_run_is_there(review: Any) -> None:
    read = Read(made(review, "# Review\n\nRevenue dropped."))
    text = " ".join(read.text.split())
    for said in (
        *("last night", "session-0r5k", "run-1 completed", "3 turns", "2 tool calls", "1,000 tokens"),
        *("analyse why revenue dropped", "delivered (turn-1)", "Looking at revenue and traffic."),
        *("query_sales", '{ "sql": "select 1" }', "1204 rows", "attempt 2", "effect read"),
        *("Which products count as new?", "Those of this week", "only new products"),
        "2026-01-02 03:04:05 UTC",
    ):
        assert said in text, said
    # The reply that became the report is told once.
    assert text.count("Revenue dropped.") == 1
    assert read.all("article", "report")


def test_every_row_of_the_chart_leads_to_its_step(review: Any) -> None:
    read = Read(made(review))
    rows = read.all("a", "row")
    names = {str(found.get("id")) for _, found in read.elements if found.get("id")}
    assert len(rows) >= 7
    assert {str(row["href"]).removeprefix("#") for row in rows} <= names


def test_what_is_unresolved_open_or_failed_is_seen_without_a_click(story: Callable[..., Any]) -> None:
    run = story().started()
    run.tool(1, "turn-1", "export_rows", {"to": "warehouse"}, effect="write")
    run.event("tool.remote_id", operationId="op-1", remoteId="job-99")
    run.event("run.cancel_requested", actor={}, reason="enough", intent="cancel", via="command")
    run.tool_ends(1, "cancelled", mayHaveEffects=True, error="killed")
    run.finished("cancelled", "enough")
    read = Read(made(run))
    text = " ".join(read.text.split())
    assert "unresolved: what these did outside is not known op-1 export_rows cancelled remote id job-99" in text
    assert "reason: enough" in text
    assert "open" in read.all("details")[-1]


def test_a_run_that_goes_on_has_a_page_too(busy: Any, story: Callable[..., Any]) -> None:
    text = Read(made(busy)).text
    assert "run-1 running" in text
    waiting = story().started()
    waiting.event("run.waiting_input", questionId="q-1", kind="question", text="Which <week>?")
    assert "waits for an answer" in Read(made(waiting)).text
    assert "Which <week>?" in Read(made(waiting)).text
    assert Read(made(story().accepted())).text


def test_copied_messages_stand_in_front_and_name_their_run(review: Any) -> None:
    message = review.messages[0]._replace(text="copied words", session_id="s2")
    origin = {"sessionId": "session-old", "seq": 1}
    session = review.session()._replace(forked_from=origin)
    read = Read("".join(page(session, [message], [record(review)], review.now)))
    assert "session-old/run-1" in read.text
    assert read.text.index("copied words") < read.text.index("run-1 completed")


@pytest.fixture
def hostile(story: Callable[..., Any]) -> str:
    """The page of a run in which everything that can be stored is hostile."""
    run = story().started(HOSTILE)
    run.event("model.request.started", operationId="op-1", turnId=HOSTILE, model=HOSTILE, attempt=1)
    run.model_says(1, HOSTILE, calls=True)
    run.event(
        "tool.registered", operationId=HOSTILE, turnId=HOSTILE, toolCallId="c", toolName=HOSTILE,
        arguments={HOSTILE: [HOSTILE]}, effect="write", resource=HOSTILE,
    )  # fmt: skip
    run.event("tool.started", operationId=HOSTILE, toolCallId="c", toolName=HOSTILE, attempt=1)
    run.event("tool.remote_id", operationId=HOSTILE, remoteId=HOSTILE)
    run.event(
        "tool.finished", operationId=HOSTILE, status="unknown", error=HOSTILE, note=HOSTILE, result=HOSTILE,
        mayHaveEffects=True, blob={"sha256": HOSTILE, "bytes": HOSTILE},
    )  # fmt: skip
    run.event("run.cancel_requested", actor={}, reason=HOSTILE, intent="cancel", via="command")
    run.message("user", HOSTILE, HOSTILE)
    run.message("system", HOSTILE, HOSTILE)
    run.message("assistant", "question", HOSTILE, question_id=HOSTILE)
    run.finished("cancelled", HOSTILE)
    run.messages[-1] = run.messages[-1]._replace(at=HOSTILE)
    session = run.session(HOSTILE)._replace(agent=HOSTILE, created_at=HOSTILE)
    told = record(run, HOSTILE)
    view = told.detail.view
    broken = view.run._replace(
        references=(HOSTILE,), continues=HOSTILE, agent=HOSTILE, parent_run={"sessionId": HOSTILE}
    )
    told = told._replace(detail=told.detail._replace(view=view._replace(run=broken)))
    return "".join(page(session, run.messages, [told], run.now))


def test_hostile_text_is_text(hostile: str) -> None:
    read = Read(hostile)
    assert read.text.count("<script>document.title='owned'</script>") > 20
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]", hostile)
    assert "\\u202e" in read.text
    # Attributes that are ours hold what is ours: a place in percent, and the name of a step.
    for _, found in read.elements:
        assert re.fullmatch(r"(left:[0-9.]+%;?)?(width:[0-9.]+%)?", str(found.get("style") or ""))
        assert re.fullmatch(r"(#?[A-Za-z0-9._-]*)", str(found.get("href") or ""))
        assert re.fullmatch(r"[A-Za-z0-9._-]*", str(found.get("id") or ""))


def test_the_page_forbids_itself_to_run_or_fetch_anything(hostile: str) -> None:
    read = Read(hostile)
    policy = next(each["content"] for each in read.all("meta") if each.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert not re.search(r"url\(|@import|https?:", hostile)


def test_it_is_made_in_pieces_and_a_run_at_a_time(review: Any, start: float) -> None:
    asked: list[int] = []

    def runs() -> Any:
        for number in range(3):
            asked.append(number)
            yield record(review)

    pieces = page(review.session(), (), runs(), start)
    next(pieces)
    assert asked == []
    while "run-1" not in next(pieces):
        pass
    assert asked == [0]
