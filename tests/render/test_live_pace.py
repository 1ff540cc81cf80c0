"""How often the live view writes: at once when something happened, and never for nothing."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.render.live import Live
from agentrun.render.theme import Screen


def test_nothing_is_written_while_nothing_changes(busy: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=busy.now)
    watch.tell(busy)
    watch.tick(1)
    writes = len(watch.terminal.sent)
    assert watch.live.next_tick() == pytest.approx(1.0)
    for _ in range(9):
        watch.tick(0.1)
    assert len(watch.terminal.sent) == writes
    watch.tick(0.2)
    assert len(watch.terminal.sent) == writes + 1


def test_streaming_draws_ten_times_a_second_at_most(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    run = story().started()
    run.asks_model(1, "turn-1")
    watch = watching(now=run.now)
    watch.tell(run)
    writes = len(watch.terminal.sent)
    for number in range(1000):
        watch.now += 0.001
        watch.live.draft(f"word {number} " * 100)
    assert 8 <= len(watch.terminal.sent) - writes <= 11
    assert 0 <= (watch.live.next_tick() or 0) <= 0.1
    watch.tick(0.1)
    assert "word 999" in " ".join(watch.terminal.shown)


def test_when_the_next_tick_is_wanted(busy: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=busy.now)
    assert watch.live.next_tick() is None
    watch.tell(busy)
    watch.tick(1)
    assert watch.live.next_tick() == pytest.approx(1.0)
    watch.now += 0.75
    assert watch.live.next_tick() == pytest.approx(0.25)
    watch.live.pause()
    assert watch.live.next_tick() is None
    watch.live.resume()
    busy.tool_ends(1)
    busy.tool_ends(2)
    busy.event("run.cancel_requested", intent="cancel")
    busy.finished("cancelled")
    watch.tell(busy)
    watch.tick(0.1)
    assert watch.live.next_tick() is None


def test_a_run_that_waits_costs_nothing(story: Callable[..., Any], watching: Callable[..., Any]) -> None:
    run = story().started()
    run.event("run.waiting_input", questionId="q-1", kind="question", text="Which?")
    watch = watching(now=run.now)
    watch.tell(run)
    writes = len(watch.terminal.sent)
    assert watch.live.next_tick() is None
    watch.tick(3600)
    assert len(watch.terminal.sent) == writes


def test_a_terminal_without_a_size_has_the_usual_one(busy: Any) -> None:
    stream = io.StringIO()
    screen = Screen(80, colour=False, unicode=True, interactive=True)
    live = Live(screen, stream, size=lambda: (0, 0), wall=lambda: busy.now + 60)
    for event in busy.events:
        live.event(event)
    live.tick(busy.now + 120)
    assert '  ● op-1  query_sales  2m 01s  {"sql":"select 1"}' in stream.getvalue()


def test_a_clock_that_is_set_back_stops_nothing(busy: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=busy.now)
    watch.tell(busy)
    watch.now -= 86400
    watch.live.tick()
    assert "● running  0s  2 tool calls" in watch.terminal.shown
    assert (watch.live.next_tick() or 0) <= 1


def test_a_backlog_between_pause_and_resume_costs_one_drawing(review: Any, watching: Callable[..., Any]) -> None:
    watch = watching(now=review.now)
    watch.live.pause()
    writes = len(watch.terminal.sent)
    watch.tell(review)
    assert len(watch.terminal.sent) == writes
    watch.live.resume()
    assert len(watch.terminal.sent) == writes + 1
    assert watch.terminal.shown[0] == "› #1 prompt  delivered (turn-1)"
    assert watch.terminal.shown[-1] == "✓ op-5  model scripted  1.0s"
