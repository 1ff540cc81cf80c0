"""What a person reads, form by form; and that nothing stored gets through to the terminal in any of them."""

import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentrun.errors import Ambiguous, ConfigError, SlotTaken
from agentrun.records.message import Message
from agentrun.records.views import Accepted, RunDetail, SessionView
from agentrun.render import plain, standing, tables, transcript
from agentrun.render.safe import columns_of
from agentrun.render.theme import Screen
from agentrun.states import RunStatus

ROOT = Path(__file__).resolve().parents[2]
REPORT = "# Review\n\nRevenue dropped."
SGR = re.compile(r"\x1b\[[0-9]*m")


def test_a_run_from_its_prompt_to_its_report(review: Any, plain_screen: Screen) -> None:
    assert plain.run_text(review.detail(REPORT), plain_screen, review.now) == (
        "session-0r5k/run-1  ✓ completed  14s  3 turns  2 tool calls  1 retry  1,000 tokens\n"
        "\n"
        "› #1 prompt  delivered (turn-1)\n"
        "  analyse why revenue dropped\n"
        "✓ op-1  model scripted  1.0s\n"
        "  Looking at revenue and traffic.\n"
        '✓ op-2  query_sales  2.0s  {"sql":"select 1"}\n'
        "    result: 1204 rows\n"
        '✓ op-3  query_traffic  3.0s  attempt 2  {"sql":"select 2"}\n'
        "    result: 60 rows\n"
        "✓ op-4  model scripted  1.0s\n"
        "? #2 question\n"
        "  Which products count as new?\n"
        "› #3 answer  delivered (turn-3)\n"
        "  Those of this week\n"
        "› #4 steer  delivered (turn-3)\n"
        "  only new products\n"
        "✓ op-5  model scripted  1.0s\n"
        "\n"
        "# Review\n"
        "\n"
        "Revenue dropped.\n"
    )


def test_a_cancelled_run_shows_what_it_left(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story(run_id="run-3").started("stock risk")
    run.tool(1, "turn-1", "export_rows", {"to": "warehouse"}, effect="write")
    run.event("tool.remote_id", operationId="op-1", remoteId="job-99")
    run.event("run.cancel_requested", actor={}, reason="enough", intent="cancel", via="command")
    run.message("user", "steer", "too late")
    run.tool_ends(1, "cancelled", mayHaveEffects=True, error="killed")
    run.finished("cancelled", "enough", (2,))
    run.message("system", "ended", "run-3 was cancelled: enough")
    assert plain.run_text(run.detail(), plain_screen, run.now) == (
        "session-0r5k/run-3  ■ cancelled, 1 unresolved  5.0s  1 tool call\n"
        "  reason: enough\n"
        "\n"
        "› #1 prompt  delivered (turn-1)\n"
        "  stock risk\n"
        '■ op-1  export_rows  cancelled  unresolved  3.0s  remote id job-99  {"to":"ware…\n'
        "    error: killed\n"
        "› #2 steer  returned (the run ended as cancelled)\n"
        "  too late\n"
        "\n"
        "! unresolved: what these did outside is not known\n"
        "  op-1  export_rows  cancelled  remote id job-99\n"
        "  say how they ended with: agentrun reconcile session-0r5k/run-3\n"
    )


def test_one_run_is_no_runs(story: Callable[..., Any], plain_screen: Screen) -> None:
    asked = plain.question_text(story().session("old figures"), 1000, 1, plain_screen)
    assert asked.endswith(" with 1,000 messages and 1 run, for good? [y/N] ")


def test_a_waiting_run_says_how_to_answer(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    run.message("assistant", "question", "Which?\nAll?", question_id="q-1")
    run.event(
        "run.waiting_input", questionId="q-1", kind="question", text="Which?\nAll?",
        deadline="2026-01-02T05:04:07.000Z",
    )  # fmt: skip
    text = plain.run_text(run.detail(executor="none"), plain_screen, run.now)
    assert text.endswith(
        "  analyse why revenue dropped\n"
        "\n"
        "? waits for your answer (2h 00m left)\n"
        "  Which?\n"
        "  All?\n"
        '  answer with: agentrun send session-0r5k "your answer"\n'
    )
    assert text.count("Which?") == 1


def test_an_approval_names_its_operation(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    run.event("run.waiting_input", questionId="q-1", kind="approval", text="Export?", operationId="op-7")
    text = standing.attention_text(run.view(), plain_screen, run.now)
    assert "  allow it with: agentrun approve session-0r5k/run-1 op-7\n" in text
    assert "  refuse it with: agentrun deny session-0r5k/run-1 op-7\n" in text


def test_an_approval_stands_where_it_was_asked(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    run.tool(1, "turn-1", "query", {})
    run.now += 1
    run.message("assistant", "question", "Export?", question_id="q-1")
    run.event("run.waiting_input", questionId="q-1", kind="approval", text="Export?", operationId="op-2")
    run.message("user", "answer", "approved", question_id="q-1")
    run.event("run.input_received", questionId="q-1", messageSeq=3, approved=True)
    run.tool(2, "turn-1", "export", {}, effect="write")
    text = plain.run_text(run.detail(), plain_screen, run.now)
    order = [text.index(each) for each in ("op-1", "#2 question", "#3 answer", "op-2")]
    assert order == sorted(order)


def test_a_lost_run_says_so_and_what_to_type(story: Callable[..., Any], plain_screen: Screen) -> None:
    view = story().started().view(executor="lost", status=RunStatus.RECONCILING, overdue=True)
    assert standing.attention_text(view, plain_screen) == (
        "! its executor is gone: nothing drives this run\n"
        "  take it up with: agentrun resume session-0r5k/run-1\n"
        "  or all of them: agentrun recover\n"
        "  end it with: agentrun cancel session-0r5k/run-1\n"
        "! overdue: its deadline has passed and nobody has enforced it yet\n"
    )
    assert standing.hints_after_send(view, plain_screen) == ""


def test_a_lost_run_that_is_to_stop_is_not_to_be_taken_up(story: Callable[..., Any], plain_screen: Screen) -> None:
    view = story().started().view(executor="lost", status=RunStatus.RECONCILING, stop_asked=True)
    assert standing.attention_text(view, plain_screen) == (
        "! its executor is gone: nothing drives this run\n"
        "  end it with: agentrun cancel session-0r5k/run-1\n"
        "! stop asked, not taken up\n"
    )


def test_a_run_that_is_fine_needs_nothing(review: Any, plain_screen: Screen) -> None:
    assert standing.attention_text(review.view(), plain_screen) == ""


def test_a_run_that_is_over_says_that_events_of_it_are_lost(review: Any, plain_screen: Screen) -> None:
    view = review.view()
    assert view.run.is_over
    view = view._replace(run=view.run._replace(unread_events=3))
    assert standing.attention_text(view, plain_screen) == (
        "! 3 of its events are lost or cannot be read: what is shown of it may not be all\n"
        f"  see what is damaged: agentrun check {view.run.session_id}\n"
    )


def test_a_big_result_is_shown_as_a_reference(story: Callable[..., Any], plain_screen: Screen) -> None:
    run = story().started()
    run.tool(1, "turn-1", "dump", {})
    run.tool_ends(1, blob={"sha256": "ab" * 32, "bytes": 104857600})
    text = plain.run_text(run.detail(), plain_screen, run.now)
    assert "    result: 104857600 bytes, kept in blobs/abababab" in text


def test_a_text_that_nobody_can_read_to_its_end_is_shown_as_its_beginning_and_its_size(
    plain_screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """# promise 16; case C17"""
    monkeypatch.setattr(transcript, "_IN_FULL", 20)
    said = Message(3, "s", "run-1", "user", "steer", "a line\n" + "x" * 100, None, None)
    assert plain.message_text(said, plain_screen) == (
        f"#3 user steer  run-1\n  a line\n  {'x' * 13}\n  87 of 107 characters are left out here: --json has them\n"
    )
    short = said._replace(text="a line\n" + "x" * 13)
    assert plain.message_text(short, plain_screen).endswith(f"\n  {'x' * 13}\n")


def test_a_session_lists_its_runs(review: Any, plain_screen: Screen, start: float) -> None:
    view = SessionView(review.session(), (review.view(),))
    assert plain.session_text(view, plain_screen, start + 100) == (
        "session-0r5k  last night's live stream\n"
        "  agent analyst  created 1m ago\n"
        "  run-1  ✓ completed      14s  1m ago  3 turns  2 tool calls  1 retry  1,000 tokens\n"
    )
    assert plain.session_text(SessionView(review.session(), ()), plain_screen).endswith("  no runs yet\n")


def test_rows_are_aligned(story: Callable[..., Any], review: Any, plain_screen: Screen, start: float) -> None:
    rows = [
        story(session_id="session-1").started().row("今晚直播复盘 👨\u200d👩\u200d👧", changed=start - 7300),
        review.row(changed=start + 3600),
        review.row("x" * 200, changed=start)._replace(newest=None),
    ]
    assert tables.rows_text(rows, plain_screen._replace(width=60), start) == (
        "session-1     ● running     2h  今晚直播复盘 👨\u200d👩\u200d👧\n"
        "session-0r5k  ✓ completed  now  last night's live stream\n"
        "session-0r5k  no run       now  " + "x" * 27 + "…\n"
    )


def test_rows_on_a_narrow_screen_keep_their_ids_whole(review: Any, plain_screen: Screen, start: float) -> None:
    assert tables.rows_text([review.row()], plain_screen._replace(width=20), start) == (
        "session-0r5k\n  ✓ completed  now…\n"
    )
    assert tables.rows_text([], plain_screen) == ""


def test_accepted(plain_screen: Screen) -> None:
    accepted = Accepted("session-0r5k", "run-2", 9, "follow-up", RunStatus.RUNNING)
    assert standing.accepted_line(accepted) == "session-0r5k/run-2 9 follow-up\n"
    assert standing.accepted_text(accepted, plain_screen) == (
        "accepted as follow-up #9 of session-0r5k/run-2 (running)\n"
    )
    assert standing.hints_after_accept(accepted, plain_screen) == (
        "  watch it with: agentrun show -f session-0r5k/run-2\n"
        '  steer it with: agentrun steer session-0r5k/run-2 "..."\n'
        "  stop it with: agentrun cancel session-0r5k/run-2\n"
    )


def test_how_to_go_on(review: Any, story: Callable[..., Any], plain_screen: Screen) -> None:
    assert standing.hints_after_send(review.view(), plain_screen) == (
        '  go on with: agentrun send session-0r5k "..."\n  look back with: agentrun show session-0r5k/run-1\n'
    )
    assert standing.hints_after_send(story().started().view(), plain_screen) == (
        "  watch it with: agentrun show -f session-0r5k/run-1\n  stop it with: agentrun cancel session-0r5k/run-1\n"
    )


def test_errors(plain_screen: Screen) -> None:
    taken = SlotTaken("s/run-3 is executed by ann@tea.", hint="watch it with: agentrun show -f s/run-3")
    assert plain.error_text(taken, plain_screen) == (
        "agentrun: s/run-3 is executed by ann@tea.\n  watch it with: agentrun show -f s/run-3\n"
    )
    assert plain.error_text(Ambiguous("two match", ["s-1", "s-2"]), plain_screen) == (
        "agentrun: two match\n  s-1\n  s-2\n"
    )
    many = Ambiguous("many match", [f"s-{number}" for number in range(1000)], hint="give more of the id")
    lines = plain.error_text(many, plain_screen).split("\n")
    assert (len(lines), lines[-3:-1]) == (24, ["  and 980 more", "  give more of the id"])
    assert plain.error_text(ConfigError("no\nagent \x1b[2J"), plain_screen) == ("agentrun: no\\nagent \\x1b[2J\n")


# What holds for every form.


def every_text(story: Callable[..., Any], screen: Screen, hostile: str) -> list[str]:
    """Every form, with `hostile` in everything that can be stored."""
    run = story(session_id=f"s{hostile}", run_id=f"run-1{hostile}").started(hostile)
    run.tool(1, f"turn{hostile}", f"tool{hostile}", {"a": hostile}, effect="write")
    run.event("tool.remote_id", operationId="op-1", remoteId=hostile)
    run.tool_ends(1, "failed", error=hostile, result=hostile, mayHaveEffects=True)
    run.asks_model(2, "turn-2")
    run.model_says(2, hostile)
    run.message("user", hostile, hostile)
    run.message("system", "compact", hostile)
    run.event("run.waiting_input", questionId="q", kind="question", text=hostile, deadline=hostile)
    waiting = run.detail(report=hostile)
    run.event("run.cancel_requested", actor={"user": hostile, "host": hostile}, reason=hostile, intent="cancel")
    run.finished("cancelled", hostile)
    over: RunDetail = run.detail(report=hostile)
    accepted = Accepted(f"s{hostile}", f"run{hostile}", 1, hostile, RunStatus.QUEUED)
    return [
        plain.run_text(waiting, screen),
        plain.run_text(over, screen),
        plain.session_text(SessionView(run.session(hostile), (waiting.view, over.view)), screen),
        tables.rows_text([run.row(hostile)], screen),
        plain.error_text(ConfigError(hostile, hint=hostile), screen),
        plain.error_text(Ambiguous(hostile, [hostile]), screen),
        standing.accepted_line(accepted),
        standing.accepted_text(accepted, screen),
        standing.hints_after_accept(accepted, screen),
        standing.hints_after_send(over.view, screen),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(hostile=st.text(st.characters(), max_size=20), width=st.integers(20, 200), colour=st.booleans())
@example(hostile="\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x7f", width=20, colour=True)
@example(hostile="\u202egnp.exe\u2066\u200b\u200d\u2028\x85\ufeff\U000e0041\udc80", width=80, colour=False)
def test_no_form_sends_what_is_stored(story: Callable[..., Any], hostile: str, width: int, colour: bool) -> None:
    screen = Screen(width=width, colour=colour, unicode=True, interactive=False)
    for text in every_text(story, screen, hostile):
        bare = SGR.sub("", text) if colour else text
        sent = {each for each in bare if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        assert sent <= {"\n", "\t", "\u200d"}, (sent, text)


def test_all_control_and_format_characters_at_once(story: Callable[..., Any], plain_screen: Screen) -> None:
    characters = (chr(point) for point in range(sys.maxunicode + 1))
    hostile = "".join(each for each in characters if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp"))
    for text in every_text(story, plain_screen, hostile):
        assert {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")} <= {
            "\n",
            "\t",
        }


def test_without_unicode_all_is_ascii(story: Callable[..., Any], plain_screen: Screen) -> None:
    for text in every_text(story, plain_screen._replace(unicode=False), "今晚 é 😀"):
        assert text.isascii()


def test_colour_changes_nothing_but_colour(story: Callable[..., Any], plain_screen: Screen) -> None:
    for bare, coloured in zip(
        every_text(story, plain_screen, "text"),
        every_text(story, plain_screen._replace(colour=True), "text"),
        strict=True,
    ):
        assert "\x1b" not in bare
        assert SGR.sub("", coloured) == bare


@pytest.mark.parametrize("width", range(20, 201, 9))
def test_lists_and_operations_fit_any_width(
    width: int, story: Callable[..., Any], review: Any, plain_screen: Screen, start: float
) -> None:
    screen = plain_screen._replace(width=width)
    rows = [review.row("中文标题" * 50), story().started().row("é" * 300)]
    lines = tables.rows_text(rows, screen, start).splitlines()
    lines += [each for each in plain.run_text(review.detail(), screen).splitlines() if "op-" in each]
    assert max(map(columns_of, lines)) <= width


@pytest.mark.slow
def test_plain_and_json_load_nothing_heavy() -> None:
    program = (
        "import sys, agentrun.render.plain, agentrun.render.standing, agentrun.render.json\n"
        "print(*{'rich', 'dataclasses', 'anyio', 'asyncio', 'inspect'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
