"""The live view, seen through a real terminal emulator: what stays on the screen, and what does not."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentrun.render.live import Live
from agentrun.render.theme import Screen

REPORT = "# Review\n\nRevenue dropped."
RECORD = [
    "› #1 prompt  delivered (turn-1)",
    "  analyse why revenue dropped",
    "✓ op-1  model scripted  1.0s",
    "  Looking at revenue and traffic.",
    "✓ op-2  query_sales  2.0s  {\"sql\":\"select 1\"}",
    "    result: 1204 rows",
    "! op-3 query_traffic attempt 1 failed, tried again after 0.2s: exit code 75",
    "✓ op-3  query_traffic  3.0s  attempt 2  {\"sql\":\"select 2\"}",
    "    result: 60 rows",
    "✓ op-4  model scripted  1.0s",
    "? question",
    "  Which products count as new?",
    "› #3 answer  delivered (turn-3)",
    "  Those of this week",
    "› #4 steer  delivered (turn-3)",
    "  only new products",
    "✓ op-5  model scripted  1.0s",
    "session-0r5k/run-1  ✓ completed  14s  3 turns  2 tool calls  1 retry  1,000 tokens",
]  # fmt: skip


def test_the_record_stays_and_nothing_is_there_twice(review: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=review.now)
    watch.tell(review)
    watch.live.finish(review.detail(REPORT))
    assert watch.terminal.shown == RECORD


@pytest.mark.parametrize("rows", [2, 5, 24])
def test_scrolling_away_loses_and_doubles_nothing(review: Any, rows: int, watching: Callable[..., Any]) -> None:
    watch = watching(rows=rows, now=review.now)
    for _ in range(2):  # what is seen again changes nothing
        watch.tell(review)
        watch.tick(0.5)
        watch.tick(1.5)
    watch.live.finish(review.detail(REPORT))
    assert watch.terminal.all == RECORD


def test_the_region_shows_what_goes_on(busy: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=busy.now)
    watch.tell(busy)
    busy.message("user", "steer", "only new\nproducts")
    watch.live.message(busy.messages[-1])
    watch.tick(62)
    assert watch.terminal.shown == [
        "› #1 prompt  delivered (turn-1)",
        "  analyse why revenue dropped",
        "● running  1m 04s  2 tool calls",
        '  ● op-1  query_sales  1m 03s  {"sql":"select 1"}',
        '  ● op-2  query_traffic  1m 02s  {"sql":"select 2"}',
        "  › #2 steer waiting  only new products",
    ]


def test_between_two_attempts_the_pause_is_shown_and_counts_down(busy: Any, watching: Callable[..., Any]) -> None:
    # covers A9
    busy.tool_ends(1, "failed", error="exit 75", willRetry=True, pauseMs=4500)
    watch = watching(now=busy.now)
    watch.tell(busy)
    assert watch.terminal.shown[2] == "! op-1 query_sales attempt 1 failed, tried again after 4.5s: exit 75"
    assert watch.terminal.shown[4] == '  ○ op-1  query_sales  pending  attempt 2 in 5s  {"sql":"select 1"}'
    watch.tick(2)
    assert "attempt 2 in 3s" in watch.terminal.shown[4]
    watch.tick(60)
    assert "attempt 2 in 0s" in watch.terminal.shown[4], "the executor is late, and no time is made up"
    busy.starts_tool(1, "query_sales", attempt=2)
    watch.live.event(busy.events[-1])
    watch.tick(1)
    assert watch.terminal.shown[4].startswith("  ● op-1  query_sales  1m 0")
    assert 's  attempt 2  {"sql"' in watch.terminal.shown[4]


def test_streamed_text_is_shown_and_replaced_by_the_reply(
    story: Callable[..., Any], watching: Callable[..., Any]
) -> None:
    run = story().started()
    run.asks_model(1, "turn-1")
    watch = watching(now=run.now, columns=32)
    watch.tell(run)
    watch.now += 1
    watch.live.draft("First line.\nThe answer is a rather long line \x1b[2J")
    assert watch.terminal.shown[2:] == [
        "● running  turn-1  2s",
        "  ● op-1  model scripted  1s",
        "    The answer is a rather long",
        "    line \\x1b[2J",
    ]
    run.model_says(1, "The answer.", calls=True)
    watch.live.event(run.events[-1])
    assert watch.terminal.shown[2:] == [
        "✓ op-1  model scripted  1.0s",
        "  The answer.",
        "● running  turn-1  2s",
    ]


def test_who_comes_when_a_reply_is_whole_sees_it_once(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    """The file of the draft outlives its request, and is what a late viewer reads after the events."""
    run = story().started()
    run.asks_model(1, "turn-1")
    run.model_says(1, "The answer.", calls=True)
    run.tool(2, "turn-1", "query_sales", {})
    watch = watching(now=run.now)
    watch.tell(run)
    watch.live.draft("The answer.")
    watch.tick(1)
    assert [each for each in watch.terminal.shown if "The answer." in each] == ["  The answer."]
    run.tool_ends(2, result="1")
    run.asks_model(3, "turn-2")
    watch.tell(run)
    watch.live.draft("Another")
    watch.tick(1)
    assert watch.terminal.shown[-1] == "    Another"


def test_a_reply_that_is_not_the_report_after_all_is_told(
    story: Callable[..., Any], watching: Callable[..., Any]
) -> None:
    run = story().started()
    run.asks_model(1, "turn-1")
    run.model_says(1, "Done already.")
    run.message("user", "follow-up", "and also")
    run.delivered(2, "turn-2")
    run.asks_model(2, "turn-2")
    watch = watching(now=run.now)
    watch.tell(run)
    assert watch.terminal.shown[2:6] == [
        "✓ op-1  model scripted  1.0s",
        "  Done already.",
        "› #2 follow-up  delivered (turn-2)",
        "  and also",
    ]
    run.event("run.failing", reason="no model")
    run.model_says(2, "Too late.")
    run.finished("failed", "no model")
    watch.tell(run)
    watch.live.finish(run.detail())
    assert watch.terminal.shown[-4:] == [
        "✓ op-2  model scripted  2.0s",
        "  Too late.",
        "session-0r5k/run-1  ✗ failed  6.0s  2 turns",
        "  reason: no model",
    ]


def test_an_approval_that_was_given_waits_for_nothing(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    """No turn takes it: the call that it allows goes on at once."""
    run = story().started()
    run.tool(1, "turn-1", "order", {})
    run.event("run.waiting_input", questionId="q-1", kind="approval", text="May it?", operationId="op-1")
    run.message("user", "answer", "approved: fine", question_id="q-1")
    run.event("run.input_received", questionId="q-1", messageSeq=2, approved=True)
    watch = watching(now=run.now)
    watch.tell(run)
    assert not [each for each in watch.terminal.shown if "waiting" in each]
    assert watch.terminal.shown[-4:-2] == ["› #2 answer  delivered", "  approved: fine"]
    told = [each for each in watch.terminal.shown if "approved" in each]
    assert told == ["  approved: fine"], "it is told once"


@pytest.mark.parametrize("columns", [20, 41, 60])
def test_the_command_that_answers_is_whole_on_a_narrow_screen(
    columns: int, story: Callable[..., Any], watching: Callable[..., Any]
) -> None:
    run = story().started()
    run.message("assistant", "question", "Which?", question_id="q-1")
    run.event("run.waiting_input", questionId="q-1", kind="question", text="Which?")
    watch = watching(columns=columns, now=run.now)
    watch.tell(run)
    command = '  answer with: agentrun send session-0r5k "your answer"'
    assert command in "".join(row.ljust(columns) for row in watch.terminal.shown)


def test_an_open_question_is_shown_then_told_once(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    run = story().started()
    run.message("assistant", "question", "Which?", question_id="q-1")
    run.event("run.waiting_input", questionId="q-1", kind="question", text="Which?")
    watch = watching(now=run.now)
    watch.tell(run)
    assert watch.terminal.shown[2:] == [
        "? waiting_input",
        "  ?  Which?",
        '  answer with: agentrun send session-0r5k "your answer"',
    ]
    watch.live.pause()
    assert watch.terminal.shown[2:] == ["? question", "  Which?"]
    watch.terminal.write("> all of them\n")
    run.message("user", "answer", "all of them", question_id="q-1")
    run.event("run.input_received", questionId="q-1", messageSeq=3)
    run.delivered(3, "turn-2")
    watch.tell(run)
    watch.live.resume()
    assert watch.terminal.shown[2:] == [
        "? question",
        "  Which?",
        "> all of them",
        "› #3 answer  delivered (turn-2)",
        "  all of them",
        "● running  1s",
    ]


def test_a_waiting_run_ends_the_view_with_what_to_type(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    run = story().started()
    run.event("run.waiting_input", questionId="q-1", kind="question", text="Which?")
    watch = watching(now=run.now)
    watch.tell(run)
    watch.live.finish(run.detail(executor="none"))
    assert watch.terminal.shown[2:] == [
        "session-0r5k/run-1  ? waiting_input  1.0s",
        "? waits for your answer",
        "  Which?",
        '  answer with: agentrun send session-0r5k "your answer"',
    ]


def test_a_stop_and_what_it_leaves(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    run = story().started()
    run.tool(1, "turn-1", "export_rows", {}, effect="write")
    run.event("tool.remote_id", operationId="op-1", remoteId="job-99")
    run.event("run.cancel_requested", actor={"user": "ann", "host": "tea"}, reason="enough", intent="cancel")
    watch = watching(now=run.now)
    watch.tell(run)
    assert watch.terminal.shown[2:] == [
        "! stop asked by ann@tea: enough",
        "◌ cancelling  3s  1 tool call",
        "  ● op-1  export_rows  2s  remote id job-99",
    ]
    run.message("user", "steer", "too late")
    run.tool_ends(1, "cancelled", mayHaveEffects=True)
    run.finished("cancelled", "enough", (2,))
    watch.tell(run)
    watch.live.finish(run.detail())
    assert watch.terminal.shown[3:] == [
        "■ op-1  export_rows  cancelled  unresolved  3.0s  remote id job-99",
        "› #2 steer  returned (the run ended as cancelled)",
        "  too late",
        "session-0r5k/run-1  ■ cancelled, 1 unresolved  5.0s  1 tool call",
        "  reason: enough",
        "! unresolved: what these did outside is not known",
        "  op-1  export_rows  cancelled  remote id job-99",
        "  say how they ended with: agentrun reconcile session-0r5k/run-1",
    ]


def test_what_is_left_of_the_budget_and_what_is_unresolved_are_in_the_region(
    story: Callable[..., Any], watching: Callable[..., Any]
) -> None:
    run = story().accepted()
    run.event("run.started", after=0, timeoutAt="2026-01-02T03:14:05.000Z")
    run.delivered(1, "turn-1")
    run.asks_model(1, "turn-1")
    run.model_says(1, "Exporting.", calls=True, usage={"inputTokens": 1200, "outputTokens": 34, "costUsd": 0.0125})
    run.tool(2, "turn-1", "export_rows", effect="write")
    run.tool_ends(2, "unknown", error="no answer", mayHaveEffects=True)
    watch = watching(now=run.now)
    watch.tell(run)
    assert watch.terminal.shown[-2:] == [
        "● running, 1 unresolved  turn-1  4s  9m 55s left  1 tool call  1,234 tokens  $0.0125",
        "  ! op-2  export_rows  unresolved",
    ]


def test_messages_that_come_after_their_delivery_are_told(busy: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=busy.now)
    for event in busy.events:
        watch.live.event(event)
    assert "  analyse why revenue dropped" not in watch.terminal.shown
    watch.live.message(busy.messages[0])
    watch.live.message(busy.messages[0])
    assert watch.terminal.shown.count("  analyse why revenue dropped") == 1


def test_a_viewer_that_leaves_leaves_the_record(busy: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=busy.now)
    watch.tell(busy)
    watch.live.finish()
    assert watch.terminal.shown == ["› #1 prompt  delivered (turn-1)", "  analyse why revenue dropped"]


@pytest.mark.parametrize("columns", [20, 33, 200])
def test_a_resize_redraws_the_region_and_keeps_the_record(
    busy: Any, columns: int, watching: Callable[..., Any]
) -> None:
    watch = watching(now=busy.now)
    watch.tell(busy)
    watch.terminal.screen.resize(columns=columns)
    watch.tick(0.01)
    shown = watch.terminal.shown
    assert len(shown) == 5
    assert shown[0].startswith("› #1 prompt")
    assert shown[2].startswith("● running  2s")
    assert shown[3].startswith("  ● op-1  query_s")
    busy.tool_ends(1)
    watch.tell(busy)
    watch.terminal.screen.resize(columns=90)
    watch.tick(1)
    # What was printed on a narrow screen was cut for it, and stays.
    assert watch.terminal.shown[2].startswith("✓ op-1  query_sale")
    assert watch.terminal.shown[3:] == [
        "● running  3s  2 tool calls",
        '  ● op-2  query_traffic  1s  {"sql":"select 2"}',
    ]


def test_the_region_never_scrolls(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    run = story().started("中文" * 60 + "👨\u200d👩\u200d👧" * 30)
    for number in range(1, 9):
        run.tool(number, "turn-1", "查询" * 30, {"中": "文" * 50})
    for text in ("今晚" * 30, "\t" * 90, "e\u0301" * 200):
        run.message("user", "steer", text)
    watch = watching(columns=20, rows=6, now=run.now)
    watch.tell(run)
    watch.live.draft("长" * 400)
    watch.tick(1)
    before = len(watch.terminal.all)
    for number in range(10):
        watch.live.draft("长" * 41 * number)
        watch.tick(1)
    assert len(watch.terminal.all) == before
    assert len(watch.terminal.shown) <= 6


# Without a region.


def test_lines_alone_where_the_cursor_cannot_be_moved(review: Any) -> None:
    stream = io.StringIO()
    live = Live(Screen(90, colour=False, unicode=True, interactive=False), stream, wall=lambda: review.now)
    for message in review.messages:
        live.message(message)
    for event in review.events:
        live.event(event)
        live.draft("some text")
        live.tick(review.now + 5)
    assert live.next_tick() is None
    live.finish(review.detail(REPORT))
    assert "\x1b" not in stream.getvalue()
    lines = stream.getvalue().splitlines()
    assert [each for each in lines if not each.startswith("●")] == RECORD
    assert [each for each in lines if each.startswith("●")] == [
        '● op-2  query_sales  {"sql":"select 1"}',
        '● op-3  query_traffic  {"sql":"select 2"}',
        '● op-3  query_traffic  attempt 2  {"sql":"select 2"}',
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(hostile=st.text(st.characters(), max_size=20), columns=st.integers(20, 100), colour=st.booleans())
@example(hostile="\x1b[2J\x1b[H\x9b2J\x07\r\x08\x7f\u202e\u200b\u2028", columns=20, colour=True)
def test_what_is_stored_cannot_drive_the_terminal(
    story: Callable[..., Any], hostile: str, columns: int, colour: bool, watching: Callable[..., Any]
) -> None:
    run = story(session_id=f"s{hostile}").started(hostile)
    watch = watching(columns=columns, now=run.now, colour=colour)
    run.tool(1, "turn-1", hostile, {"a": hostile}, effect="write")
    run.event("tool.remote_id", operationId="op-1", remoteId=hostile)
    run.asks_model(2, f"turn{hostile}")
    run.message("user", "steer", hostile)
    run.message("system", "compact", hostile)
    watch.tell(run)
    watch.now += 1
    watch.live.draft(hostile)
    run.model_says(2, hostile)
    run.event("run.waiting_input", questionId="q", kind="question", text=hostile)
    watch.tell(run)
    watch.tick(1)
    run.event("run.cancel_requested", actor={"user": hostile, "host": hostile}, reason=hostile, intent="cancel")
    run.tool_ends(1, "failed", error=hostile, result=hostile)
    run.finished("cancelled", hostile)
    watch.tell(run)
    watch.live.finish(run.detail())
    sent = "".join(watch.terminal.sent)
    for own in ("\x1b[J", "\x1b[?7l", "\x1b[?7h", "\x1b[0m", *(f"\x1b[{each}A" for each in range(1, 10))):
        sent = sent.replace(own, "")
    for style in ("1", "2", "31", "32", "33", "36"):
        sent = sent.replace(f"\x1b[{style}m", "")
    assert not set(sent) & set("\x00\x07\x08\x0b\x0c\x0e\x1b\x7f\x85\x9b\u200b\u200e\u2028\u202e\u2066\ufeff")
    assert sent.count("\r") == sum(text.count("\r") for text in watch.terminal.sent)
