"""Where on a timeline things stand, and how it looks on a terminal of any kind."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.records.timeline import timeline_of
from agentrun.render.axis import Axis, Span
from agentrun.render.chart import chart_of
from agentrun.render.safe import columns_of
from agentrun.render.theme import Screen
from agentrun.render.timeline import timeline_lines

# covers A56: what ran at the same time stands side by side


def text_of(run: Any, screen: Screen, **seen: Any) -> str:
    return "".join(timeline_lines(run.detail(**seen), timeline_of(run.events), screen, run.now))


def parallel(story: Callable[..., Any], waited: float = 0.0) -> Any:
    """Two tools at the same time, one of which is tried twice; a question; another reply under way."""
    run = story().started()
    run.asks_model(1, "turn-1")
    run.now += 3
    run.model_says(1, "Looking.", calls=True)
    run.tool(2, "turn-1", "query_sales")
    run.tool(3, "turn-1", "query_traffic")
    run.tool_ends(2, result="1204 rows")
    run.tool_ends(3, "failed", error="75", willRetry=True, pauseMs=1000)
    run.now += 1
    run.starts_tool(3, "query_traffic", attempt=2)
    run.tool_ends(3, "failed", error="75", attempt=2)
    run.message("assistant", "question", "Which?", question_id="q-1")
    run.event("run.waiting_input", questionId="q-1", kind="question", text="Which?")
    run.now += waited
    run.message("user", "answer", "this week's", question_id="q-1")
    run.event("run.input_received", questionId="q-1", messageSeq=3)
    run.delivered(3, "turn-2")
    run.asks_model(4, "turn-2")
    run.now += 2
    return run


def test_parallel_tools_stand_side_by_side(story: Callable[..., Any], plain_screen: Screen) -> None:
    assert text_of(parallel(story), plain_screen) == (
        "session-0r5k/run-1  ● running  16s  2 turns  2 tool calls  1 retry\n"
        "                       0s          3.8s        7.5s        11s      15s\n"
        "✓ op-1 model scripted  █████████████                                        4.0s\n"
        "✓ op-2 query_sales                     ███████                              2.0s\n"
        "✗ op-3 query_traffic                      ██████░░░████                     4.0s\n"
        "? waiting_input                                           ░░░░              1.0s\n"
        "› #3 answer delivered                                     ░░░░              1.0s\n"
        "● op-4 model scripted                                           ██████▶     2.0s\n"
    )


def test_without_room_the_bars_stand_below_their_names(story: Callable[..., Any]) -> None:
    text = text_of(parallel(story), Screen(20, colour=False, unicode=False, interactive=False))
    assert text.isascii()
    lines = text.split("\n")[1:-1]
    assert max(map(len, lines)) <= 20
    assert lines[:5] == [
        "    0s  3.8s     15s",
        "+ 4.0s op-1 model...",
        "    #####",
        "+ 2.0s op-2 query...",
        "         ###",
    ]


def test_days_of_waiting_take_little_room_and_say_so(story: Callable[..., Any], plain_screen: Screen) -> None:
    text = text_of(parallel(story, waited=3 * 86400), plain_screen)
    assert "? waiting_input" in text
    assert "  ┊ drawn short: 3d 0h in which nothing was under way\n" in text
    model = next(line for line in text.split("\n") if "op-1" in line)
    assert model.count("█") > 8


def test_a_lost_run_is_drawn_to_the_last_that_is_known_of_it(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    run.tool(1, "turn-1", "export", effect="write")
    run.now += 86400
    text = text_of(run, plain_screen, executor="lost")
    assert "1d" not in next(line for line in text.split("\n") if "op-1" in line)
    assert "take it up with: agentrun resume session-0r5k/run-1" in text


def test_a_message_that_was_returned_does_not_go_on(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    run.tool(1, "turn-1", "query")
    run.message("user", "steer", "too late")
    run.event("run.cancel_requested", actor={}, reason="enough", intent="cancel", via="command")
    run.tool_ends(1, "cancelled")
    run.finished("cancelled", "enough", (2,))
    text = text_of(run, plain_screen)
    assert "#2 steer returned" in text
    assert "▶" not in text


def test_many_gaps_leave_half_of_the_room_for_what_was_done() -> None:
    busy = [Span(at * 1000.0, at * 1000.0 + 1) for at in range(100)]
    axis = Axis(0, 99_001, busy)
    assert len(axis.gaps) == 99
    assert sum(axis.at(span.end) - axis.at(span.begin) for span in busy) > 0.6
    assert (axis.at(0), axis.at(99_001)) == (0, 1)


def test_a_run_of_which_nothing_began_is_no_error(story: Callable[..., Any], plain_screen: Screen) -> None:
    assert "nothing has been started yet" in text_of(story().accepted(), plain_screen)


@pytest.mark.parametrize("width", [1, 7, 20, 33, 60, 79, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_it_fits_any_width(story: Callable[..., Any], width: int, unicode: bool) -> None:
    run = parallel(story, waited=100)
    run.tool(5, "turn-2", "名前" * 30)
    screen = Screen(width, colour=False, unicode=unicode, interactive=True)
    rows = text_of(run, screen).split("\n")[1:-1]
    assert max(map(columns_of, rows)) <= max(width, 5)


def test_wide_names_keep_the_columns(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    for number, name in enumerate(("query", "\u67e5\u8be2\u9500\u552e", "e\u0301t\u00e9", "\U0001f422x"), 1):
        run.tool(number, "turn-1", name)
        run.now -= 1
        run.tool_ends(number)
        run.now -= 1
    rows = text_of(run, plain_screen).split("\n")[2:-1]
    assert len({columns_of(row[: row.index("\u2588")]) for row in rows}) == 1
    assert len({columns_of(row) for row in rows}) == 1


def test_what_is_stored_drives_no_terminal(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    run.event(
        "tool.registered", operationId="op\x1b[2J", turnId="t", toolCallId="c", toolName="na\u202eme\x9b", effect="read"
    )
    run.event("tool.started", operationId="op\x1b[2J", toolCallId="c", toolName="x", attempt=1)
    text = text_of(run, plain_screen)
    assert "op\\x1b[2J na\\u202eme\\x9b" in text
    assert "\x1b" not in text


moments = st.floats(0, 1e6)
spans = st.lists(st.tuples(moments, moments).map(lambda pair: Span(min(pair), max(pair))), max_size=8)


@given(moments, moments, spans, st.lists(moments, min_size=2, max_size=6))
def test_an_axis_keeps_the_order_and_stays_within_its_ends(
    begin: float, length: float, busy: list[Span], asked: list[float]
) -> None:
    axis = Axis(begin, begin + length, busy)
    places = [axis.at(moment) for moment in sorted(asked)]
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)


def test_clocks_that_run_backwards_make_no_negative_bars(story: Callable[..., Any]) -> None:
    run = story().started()
    run.tool(1, "turn-1", "query")
    run.now -= 3600
    run.tool_ends(1)
    chart = chart_of(run.detail(), timeline_of(run.events), run.now)
    assert all(0 <= piece.begin <= piece.end <= 1 for row in chart.rows for piece in row.pieces)
