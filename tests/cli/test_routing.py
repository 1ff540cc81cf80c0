"""Where an input goes: by the state of the slot, by what was asked for, and the answer that says which it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow


def _accepted(home: Home, *arguments: str) -> tuple[str, int, str]:
    """Run, number and kind, as the first line of JSON says; the line in the conversation says the same."""
    sent = home.run(*arguments, "--detach", "--json") if arguments[0] == "send" else home.run(*arguments, "--json")
    assert sent.code == 0, sent.said
    (doc,) = sent.docs
    (message,) = [each for each in home.messages(doc["sessionId"]) if each["seq"] == doc["messageSeq"]]
    assert (message["runId"], message["mode"], message["role"]) == (doc["runId"], doc["mode"], "user")
    return doc["runId"], doc["messageSeq"], doc["mode"]


@pytest.fixture
def busy(home: Home) -> str:
    """A run that is held in the middle of a tool call."""
    home.tool("wait", home.gate())
    home.model(
        {"text": "working", "calls": [{"name": "wait"}]},
        {"ifContains": "only new", "text": "a report on new products"},
        {"text": "a report"},
        {"text": "a report with more"},
    )
    session = home.new()
    run = home.detach(session, "analyse")
    home.wait_for_event(run, "tool.started")
    return str(run)


@pytest.fixture
def waiting(home: Home) -> str:
    """A run that waits for an answer."""
    home.model({"ask": "which?"}, {"text": "a report"}, {"text": "and more"})
    session = home.new()
    assert home.run("send", session, "analyse").code == 5
    return f"{session}/run-1"


@pytest.fixture
def cancelling(home: Home) -> str:
    """A run that is told to stop and takes its time."""
    home.tool("stubborn", f"trap '' TERM; {home.gate()}", grace="600s")
    home.model({"calls": [{"name": "stubborn"}]}, {"text": "never"})
    run = home.detach(home.new(), "analyse")
    home.at_gate()
    assert home.run("cancel", run).code == 6
    return str(run)


def _session(run: str) -> str:
    return run.partition("/")[0]


# --- what a plain send becomes


def test_to_a_free_slot_a_prompt(home: Home) -> None:
    session = home.new()
    assert _accepted(home, "send", session, "one") == ("run-1", 1, "prompt")
    home.wait_for_status(f"{session}/run-1", "completed")
    assert _accepted(home, "send", session, "two") == ("run-2", 3, "prompt")


def test_to_a_running_run_a_follow_up_which_is_delivered_at_rest_before_the_end(home: Home, busy: str) -> None:
    # covers B17 B19
    assert _accepted(home, "send", _session(busy), "and traffic?") == ("run-1", 2, "follow-up")
    home.open_gate()
    home.wait_for_status(busy, "completed")
    types = [event["type"] for event in home.events(busy)]
    delivered = home.events(busy, "input.delivered")
    assert [each["payload"]["mode"] for each in delivered] == ["prompt", "follow-up"]
    requests = [each for each in home.events(busy) if each["type"] == "model.request.finished"]
    # The reply that would have been the report came first, and the follow-up after it.
    assert requests[1]["payload"]["text"] == "a report"
    assert delivered[1]["seq"] > requests[1]["seq"]
    assert requests[2]["payload"]["text"] == "a report with more"
    assert types[-1] == "run.finished"
    assert (home.run_dir(busy) / "report.md").read_text() == "a report with more"


def test_to_a_waiting_run_an_answer_and_the_run_goes_on(home: Home, waiting: str) -> None:
    # covers B19
    assert _accepted(home, "send", _session(waiting), "those of May") == ("run-1", 3, "answer")
    home.wait_for_status(waiting, "completed")
    (received,) = home.events(waiting, "run.input_received")
    assert received["payload"]["messageSeq"] == 3


def test_to_a_queued_run_a_follow_up_and_the_run_is_started(home: Home, until: Until) -> None:
    home.model({"text": "a report"}, {"text": "and more"})
    session = home.new()
    # Accepted, and the executor dies before it begins.
    (home.path / "sitecustomize.py").write_text(
        "import os, sys\nif 'agentrun.cli.detached' in sys.orig_argv: os._exit(1)\n"
    )
    sent = home.run("send", session, "prompt", "--detach", env={"PYTHONPATH": str(home.path)})
    assert sent.code == 0, sent.said
    until(lambda: home.view(f"{session}/1")["executor"] == "none", "the end of its executor")
    assert home.view(f"{session}/1")["status"] == "queued"
    assert _accepted(home, "send", session, "and more") == ("run-1", 2, "follow-up")
    home.wait_for_status(f"{session}/run-1", "completed")
    assert (home.run_dir(session) / "report.md").read_text() == "and more"


def test_to_a_run_that_winds_down_nothing(home: Home, cancelling: str) -> None:
    before = home.messages(_session(cancelling))
    for mode in ((), ("--mode", "prompt"), ("--mode", "steer"), ("--mode", "follow-up"), ("--mode", "answer")):
        refused = home.run("send", _session(cancelling), "more", *mode)
        assert (refused.code, refused.out) == (7, b"")
        assert cancelling in refused.said
        assert "agentrun show -f" in refused.said
    assert home.run("steer", cancelling, "more").code == 7
    assert home.messages(_session(cancelling)) == before
    home.open_gate()
    home.wait_for_status(cancelling, "cancelled")


# --- what was asked for


@pytest.mark.parametrize("mode", ["steer", "follow-up"])
def test_a_mode_that_fits_is_kept(home: Home, busy: str, mode: str) -> None:
    assert _accepted(home, "send", busy, "more", "--mode", mode) == ("run-1", 2, mode)
    home.open_gate()
    home.wait_for_status(busy, "completed")


def test_a_run_can_be_told_something_while_it_waits_which_comes_with_the_answer(home: Home, waiting: str) -> None:
    assert _accepted(home, "send", waiting, "more", "--mode", "follow-up") == ("run-1", 3, "follow-up")
    assert _accepted(home, "steer", waiting, "only new") == ("run-1", 4, "steer")
    assert home.status(waiting) == "waiting_input"
    assert home.view(waiting)["executor"] == "none"
    states = {each["messageSeq"]: each["state"] for each in home.run("show", waiting, "--json").docs[0]["inputs"]}
    assert states == {1: "delivered", 3: "waiting", 4: "waiting"}
    assert _accepted(home, "send", waiting, "those of May") == ("run-1", 5, "answer")
    home.wait_for_status(waiting, "completed")
    (last,) = {event["payload"]["turnId"] for event in home.events(waiting, "input.delivered")[1:]}
    assert last == "turn-2"


def test_a_prompt_that_would_wait_can_be_a_steer_instead(home: Home, busy: str) -> None:
    assert _accepted(home, "send", busy, "only new products", "--if-busy", "steer") == ("run-1", 2, "steer")
    home.open_gate()
    home.wait_for_status(busy, "completed")
    assert (home.run_dir(busy) / "report.md").read_text() == "a report on new products"


def test_a_prompt_to_a_free_slot_is_one_whatever_it_would_do_if_busy(home: Home) -> None:
    session = home.new()
    told = home.run("steer", session, "only new products")
    assert (told.code, f"begin one with: agentrun send {session} TEXT" in told.said) == (7, True), told.said
    assert _accepted(home, "send", session, "one", "--if-busy", "steer") == ("run-1", 1, "prompt")


def test_a_run_that_is_named_and_is_not_the_active_one_takes_nothing(home: Home, busy: str) -> None:
    session = _session(busy)
    home.open_gate()
    home.wait_for_status(busy, "completed")
    home.model({"ask": "which?"})
    home.run("send", session, "again")
    refused = home.run("steer", f"{session}/1", "more")
    assert (refused.code, refused.out) == (7, b"")
    assert f"{busy} has ended (completed)" in refused.said


# --- a steer


def test_a_call_that_would_be_tried_again_is_not_once_a_steer_has_come(home: Home) -> None:
    home.tool("again", f"{home.gate()}; exit 75", retries=2)
    home.model({"ifContains": "analyse", "calls": [{"name": "again"}]}, {"ifContains": "only new", "text": "a report"})
    session = home.new()
    run = home.detach(session, "analyse")
    home.wait_for_event(run, "tool.started")
    assert home.run("steer", session, "only new").code == 0
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert [event["payload"]["attempt"] for event in home.events(run, "tool.started")] == [1]
    last = home.events(run, "tool.finished")[-1]["payload"]
    assert last["status"] == "cancelled"
    assert "said something new" in last["error"]


def test_a_steer_takes_effect_in_the_next_request_and_skips_what_has_not_started(home: Home) -> None:
    # covers B16
    home.tool("ask", "echo hi", approve="ask", effect="write")
    home.tool("wait", home.gate())
    home.model(
        {"calls": [{"name": "wait"}, {"name": "wait"}, {"name": "ask"}]},
        {"ifContains": "only new", "text": "steered"},
        {"text": "not steered"},
    )
    session = home.new()
    run = home.detach(session, "analyse")
    home.wait_for_event(run, "tool.started", 2)
    assert home.run("steer", session, "only new products").text == f"{run} 2 steer\n"
    home.open_gate()
    # The third call would need an approval; nobody is asked about what will not start.
    assert home.wait_for_status(run, "completed", "waiting_input") == "completed"
    assert (home.run_dir(run) / "report.md").read_text() == "steered"
    finished = {
        event["payload"]["operationId"]: event["payload"]["status"] for event in home.events(run, "tool.finished")
    }
    assert list(finished.values())[:2] == ["succeeded", "succeeded"]
    assert finished["op-4"] == "skipped"
    assert len(home.events(run, "tool.started")) == 2
    delivered = home.events(run, "input.delivered")[1]
    assert (delivered["payload"]["mode"], delivered["payload"]["turnId"]) == ("steer", "turn-2")


def test_a_steer_that_comes_too_late_is_refused_or_becomes_a_prompt_that_says_so(home: Home) -> None:
    session = home.new()
    home.run("send", session, "analyse")
    late = home.run("steer", session, "only new")
    assert (late.code, late.out) == (7, b"")
    assert f"{session}/run-1 has ended (completed)" in late.said
    begun = home.run("steer", session, "only new", "--if-ended", "prompt")
    assert (begun.code, begun.text) == (0, f"{session}/run-2 3 prompt\n")
    home.wait_for_status(f"{session}/run-2", "completed")
    named = home.run("send", f"{session}/1", "more", "--mode", "steer", "--if-ended", "prompt", "--detach")
    assert (named.code, named.text) == (0, f"{session}/run-3\n")
    home.wait_for_status(f"{session}/run-3", "completed")


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_no_steer_is_taken_for_another_runs(home: Home, until: Until) -> None:
    """Case C12: around its run's end each steer is delivered in it, or refused; never taken by the next one."""
    home.model({"text": "one two three", "delayMs": 5}, {"text": "steered"}, {"text": "steered"})
    session = home.new()
    delivered = refused = 0
    for number in range(1, 101):
        run = home.detach(session, f"prompt {number}")
        home.wait_for_event(run, "model.request.started" if number % 2 else "run.started")
        marked = f"steer {number}"
        steered = home.run("steer", run, marked)
        assert steered.code in (0, 7), steered.said
        home.wait_for_status(run, "completed")
        messages = {message["text"]: message for message in home.messages(session)}
        if steered.code == 7:
            refused += 1
            assert marked not in messages
            continue
        delivered += 1
        seq = messages[marked]["seq"]
        (event,) = [each for each in home.events(run, "input.delivered") if seq in each["payload"]["messageSeqs"]]
        assert event["runId"] == messages[marked]["runId"]
    assert delivered + refused == 100
    for number in range(1, 101):
        for event in home.events(f"{session}/run-{number}", "input.delivered"):
            for seq in event["payload"]["messageSeqs"]:
                (message,) = [each for each in home.messages(session) if each["seq"] == seq]
                assert message["runId"] == f"run-{number}"


# --- keys


def test_a_key_makes_repeating_harmless_for_each_kind(home: Home, busy: str) -> None:
    session = _session(busy)
    for kind, number in (("steer", 2), ("follow-up", 3)):
        for _ in range(3):
            sent = home.run("send", session, "more", "--mode", kind, "--key", kind, "--detach", "--json")
            assert sent.docs[0]["messageSeq"] == number
    assert home.run("steer", session, "more", "--key", "steer").text == f"{busy} 2 steer\n"
    refused = home.run("steer", session, "other words", "--key", "steer")
    assert refused.code == 7
    assert len(home.messages(session)) == 3
    home.open_gate()
    home.wait_for_status(busy, "completed")
    # Also after the run has ended, the first result comes again.
    assert home.run("steer", session, "more", "--key", "steer").text == f"{busy} 2 steer\n"
    assert home.run("steer", session, "new words", "--key", "new").code == 7


# --- citing


@pytest.mark.parametrize("name", ["run-1", "1"])
def test_a_run_cites_the_report_of_an_earlier_one(home: Home, name: str) -> None:
    session = home.new()
    home.run("send", session, "analyse")
    assert home.run("send", session, "tell me more", "--ref", name).code == 0
    (accepted,) = home.events(f"{session}/run-2", "run.accepted")
    assert accepted["payload"]["references"] == ["run-1"]
    assert home.view(f"{session}/2")["references"] == ["run-1"]
    assert "cites run-1" in home.run("show", f"{session}/2").text


def test_what_has_no_report_cannot_be_cited(home: Home) -> None:
    home.model()
    session = home.new()
    home.run("send", session, "analyse")
    assert home.run("send", session, "more", "--ref", "run-1").code == 8
    assert home.run("send", session, "more", "--ref", "../run-1").code == 9
    assert len(home.messages(session)) == 2


# --- names


def test_a_session_is_found_by_a_unique_beginning_or_end(home: Home) -> None:
    home.new("--id", "live-stream-one")
    home.new("--id", "live-stream-two")
    session = home.new("third")
    short = session.removeprefix("session-")
    for name in (session, short, short[:9], short[-5:], session[:-1]):
        assert home.run("show", name).text.startswith(session)
    assert home.run("show", "live-stream-o").text.startswith("live-stream-one")
    # With a dash: the name of the third, which is made of letters by chance, cannot end like that.
    assert home.run("show", "stream-one").text.startswith("live-stream-one")
    several = home.run("show", "live-stream", "--json")
    assert several.code == 8
    assert several.error["candidates"] == ["live-stream-one", "live-stream-two"]
    text = home.run("show", "live-stream")
    assert "  live-stream-one\n  live-stream-two\n" in text.said


def test_an_exact_name_is_not_ambiguous(home: Home) -> None:
    home.new("--id", "a")
    home.new("--id", "ab")
    home.new("--id", "ba")
    assert home.run("show", "a", "--json").docs[0]["session"]["sessionId"] == "a"


def test_last_is_the_session_that_changed_last_by_record_and_of_this_account(home: Home) -> None:
    first, second = home.new("first"), home.new("second")
    assert home.run("show", "@last").text.startswith(second)
    home.run("send", first, "x")
    assert home.run("show", "@last").text.startswith(first)
    os.utime(home.session_dir(second) / "messages.jsonl")
    os.utime(home.session_dir(second))
    home.run("new", "another account's", "--account", "bob")
    assert home.run("show", "@last").text.startswith(first)


def test_what_is_not_found_makes_nothing_and_looking_changes_nothing(home: Home) -> None:
    session = home.new("a title")
    home.run("send", session, "analyse")

    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in home.root.rglob("*") if path.is_file()}

    before = state()
    for arguments in (["send", "nothing", "x"], ["steer", "nothing", "x"], ["cancel", "nothing"], ["show", "nothing"]):
        assert home.run(*arguments).code == 8
    for _ in range(3):
        for arguments in (["show", session], ["show", f"{session}/1"], ["show", "-f", session], ["ls"]):
            assert home.run(*arguments).code == 0
        terminal = home.terminal("show", "-f", session)
        assert terminal.end() == 0
    assert state() == before
