"""Summarising a session's history, by command and by itself, with real processes.

# covers A13 A20 A64 B21 B23 B47
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow

SUMMARY = {"ifContains": "Summarise", "text": "they talked about lamps"}
# Longer than any test waits: whoever lets it be summarised fails.
FOR_EVER = SUMMARY | {"delayMs": 60_000}
# Time to suspend its executor, and to let it go on.
SLOWLY = SUMMARY | {"delayMs": 1000}


def summary_of(home: Home, session: str) -> dict[str, Any]:
    return dict(json.loads((home.session_dir(session) / "summary.json").read_text()))


def talked(home: Home, *turns: dict[str, Any]) -> str:
    """A session in which something was said."""
    home.model(*turns, {"text": "a report about lamps"})
    session = home.new()
    assert home.run("send", session, "tell me about lamps").code == 0
    return str(session)


def test_an_idle_session_is_summarised_by_a_run_without_a_report(home: Home) -> None:
    session = talked(home, SUMMARY)
    before = (home.session_dir(session) / "messages.jsonl").read_bytes()
    done = home.run("compact", session)
    assert (done.code, done.text) == (0, f"{session}/run-2\n"), done.said
    summary = summary_of(home, session)
    assert summary["text"] == "they talked about lamps"
    assert summary["covers"] == {"messageSeq": 2, "runId": None, "eventSeq": None}
    assert summary["by"] == {"runId": "run-2", "operationId": "op-1"}
    assert summary["formatVersion"] == 1
    view = home.view(f"{session}/2")
    assert (view["status"], view["inputMode"], view["report"]) == ("completed", "compact", None)
    accepted, ended = home.messages(session)[2:]
    assert (accepted["role"], accepted["mode"], accepted["accept"]["agent"]) == ("system", "compact", "analyst")
    assert (ended["role"], ended["mode"]) == ("system", "ended")
    assert ended["text"] == "run-2 completed: the messages up to 2 are summarised"
    assert (home.session_dir(session) / "messages.jsonl").read_bytes().startswith(before), "history is never edited"
    assert not (home.run_dir(f"{session}/run-2") / "report.md").exists()
    assert not (home.session_dir(session) / "active").exists()


def test_the_next_run_sees_the_summary_in_place_of_what_it_covers(home: Home) -> None:
    session = talked(home, SUMMARY)
    assert home.run("compact", session).code == 0
    assert home.run("send", session, "and now?").code == 0
    used = home.events(f"{session}/run-3", "model.request.finished")[0]["payload"]["usage"]["inputTokens"]
    # "[Summary of what was said before] they talked about lamps", the note that the run ended, and the prompt.
    assert used == 10 + 15 + 2


def test_with_an_active_run_it_is_refused(home: Home) -> None:
    home.tool("wait", home.gate())
    session = talked(home, {"ifContains": "wait", "calls": [{"name": "wait"}]}, SUMMARY)
    run = home.detach(session, "wait")
    home.wait_for_event(run, "tool.started")
    refused = home.run("compact", session, "--json")
    assert (refused.code, refused.error["code"], refused.error["runId"]) == (7, "conflict", "run-2")
    assert len(home.messages(session)) == 3


def test_while_it_goes_on_prompts_are_refused_and_follow_ups_are_answered_after_it(home: Home) -> None:
    session = talked(home, SLOWLY)
    assert home.run("compact", session, "--detach").text == f"{session}/run-2\n"
    run = f"{session}/run-2"
    home.wait_for_event(run, "model.request.started")
    executor = home.executor(run)
    home.suspend(run, executor)
    assert home.status(run) == "compacting"
    refused = home.run("send", session, "another thing", "--mode", "prompt")
    assert refused.code == 7
    assert "compacting" in refused.said
    assert home.run("send", session, "and chairs?", "--detach").text == f"{run}\n"
    os.kill(executor, signal.SIGCONT)
    home.wait_for_status(run, "completed")
    types = [event["type"] for event in home.events(run)]
    assert types.index("input.delivered") > types.index("run.compacted")
    assert (home.run_dir(run) / "report.md").read_text() == "a report about lamps"


def test_a_cancel_ends_it_and_changes_nothing(home: Home) -> None:
    session = talked(home, FOR_EVER)
    run = home.run("compact", session, "--detach").text.strip()
    home.wait_for_event(run, "model.request.started")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status(run) == "cancelled"
    assert not (home.session_dir(session) / "summary.json").exists()
    assert home.events(run, "run.compacted") == []
    assert home.run("send", session, "go on").code == 0


def test_one_that_dies_leaves_the_summary_that_was_there(home: Home) -> None:
    session = talked(home, SUMMARY)
    assert home.run("compact", session).code == 0
    before = (home.session_dir(session) / "summary.json").read_bytes()
    assert home.run("send", session, "and chairs?").code == 0
    home.model(FOR_EVER, {"text": "a report"})
    run = home.run("compact", session, "--detach").text.strip()
    home.wait_for_event(run, "model.request.started")
    os.kill(home.executor(run), signal.SIGKILL)
    assert home.run("cancel", run, "--wait").code == 0
    assert (home.session_dir(session) / "summary.json").read_bytes() == before


def test_a_run_that_is_lost_while_it_summarises_is_recovered_and_goes_on(home: Home, until: Any) -> None:
    # covers A58 A61 B33
    session = talked(home, FOR_EVER)
    run = home.run("compact", session, "--detach").text.strip()
    home.wait_for_event(run, "model.request.started")
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "its executor is gone")
    assert home.view(run)["status"] == "reconciling"
    home.model(SUMMARY, {"text": "a report"})
    assert home.run("recover").code == 0
    home.wait_for_status(run, "completed")
    assert summary_of(home, session)["covers"] == {"messageSeq": 2, "runId": None, "eventSeq": None}
    assert summary_of(home, session)["by"]["runId"] == "run-2"
    statuses = [event["payload"]["status"] for event in home.events(run, "model.request.finished")]
    assert statuses.count("succeeded") == 1
    assert home.run("send", session, "and chairs?").code == 0


@pytest.mark.parametrize("left", ["the new summary", "the old summary", "half of a new one"])
def test_a_crash_between_the_summary_and_its_event_changes_nothing(home: Home, left: str) -> None:
    """What the write order leaves if it dies there, and what a power cut leaves of the replacement.

    # covers A13 A58; promise 2
    """
    session = talked(home, SUMMARY, SUMMARY | {"text": "they talked about chairs too"}, {"text": "more"})
    path = home.session_dir(session)
    assert home.run("compact", session).code == 0
    assert home.run("send", session, "and chairs?").code == 0
    old, said = (path / "summary.json").read_bytes(), (path / "messages.jsonl").read_bytes()
    # A script uses each turn once in a run: one for the pass that died, one for the pass that is made again.
    home.model(*[SUMMARY | {"text": "they talked about chairs too"}] * 2, {"text": "more"})
    run = home.run("compact", session).text.strip()
    # Back to where the reply is recorded and the summary replaced, and nothing after that.
    log = home.run_dir(run) / "operations.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["type"] for line in lines]
    log.write_bytes(b"".join(lines[: kinds.index("run.compacted")]))
    accepted = (path / "messages.jsonl").read_bytes().splitlines(keepends=True)[:-1]
    (path / "messages.jsonl").write_bytes(b"".join(accepted))
    (home.run_dir(run) / "run.json").unlink()
    (path / "active").write_text("run-4\n")
    if left == "the old summary":
        (path / "summary.json").write_bytes(old)
    elif left == "half of a new one":
        (path / ".new-summary.json").write_bytes(b'{"formatVersion": 1, "text": "they ta')
        (path / "summary.json").write_bytes(old)
    shown = home.run("show", run, "--json")
    assert (shown.code, shown.docs[0]["run"]["status"]) == (0, "reconciling")
    assert home.run("recover").code == 0
    home.wait_for_status(run, "completed")
    summary = summary_of(home, session)
    assert (summary["text"], summary["covers"]["messageSeq"]) == ("they talked about chairs too", 6)
    assert (path / "messages.jsonl").read_bytes().startswith(said)
    assert home.run("check", session).code == 0
    assert home.run("send", session, "go on").code == 0


def test_a_run_that_would_see_too_much_summarises_by_itself(home: Home) -> None:
    home.settings(agent="compact_above_tokens = 200")
    home.tool("rows", "seq 1 200")
    calls = [{"calls": [{"name": "rows"}]}, {"calls": [{"name": "rows"}]}]
    summaries = [SUMMARY | {"text": text} for text in ("first", "second", "third")]
    home.model(*summaries, *calls, {"text": "the end"})
    session = home.new()
    assert home.run("send", session, "count").code == 0
    assert home.run("show", f"{session}/1", "--report").text == "the end\n"
    compacted = [event["payload"] for event in home.events(session, "run.compacted")]
    assert compacted
    assert compacted[-1]["covers"] == summary_of(home, session)["covers"]
    assert compacted[-1]["covers"]["runId"] == "run-1"
    assert "run.compacted" in home.run("show", f"{session}/1", "--operations").text
    view = home.view(f"{session}/1")
    assert view["usage"]["modelRequests"] == view["usage"]["turns"] + len(compacted)


def test_a_summary_never_covers_what_has_reached_nobody(home: Home) -> None:
    home.tool("wait", home.gate())
    home.settings(agent="compact_above_tokens = 5")
    home.model({"ifContains": "wait", "calls": [{"name": "wait"}]}, *[SUMMARY] * 9, {"text": "a report about lamps"})
    session = home.new()
    home.detach(session, "wait for the gate please")
    home.at_gate()
    queued = home.run("send", session, "later on", "--if-busy", "queue", "--detach").text.strip()
    urgent = home.run("send", session, "at once", "--if-busy", "interrupt", "--detach").text.strip()
    home.wait_for_status(urgent, "completed")
    home.wait_for_status(queued, "completed")
    later = next(message["seq"] for message in home.messages(session) if message["text"] == "later on")
    covered = [event["payload"]["covers"] for event in home.events(urgent, "run.compacted")]
    assert covered
    assert all(each["messageSeq"] < later for each in covered)


def test_a_summary_that_cannot_be_read_is_as_good_as_none(home: Home) -> None:
    session = talked(home, SUMMARY)
    (home.session_dir(session) / "summary.json").write_bytes(b'{"text": "half')
    assert home.run("send", session, "and now?").code == 0
    assert home.run("compact", session).code == 0
    assert summary_of(home, session)["covers"]["messageSeq"] == 4


def test_an_agent_that_keeps_its_own_history_has_none_to_summarise(home: Home) -> None:
    home.config.write_text('[agents.outside]\nkind = "command"\ncommand = ["cat"]\n')
    session = home.new()
    refused = home.run("compact", session)
    assert refused.code == 13
    assert "keeps its own history" in refused.said
    assert home.messages(session) == []
