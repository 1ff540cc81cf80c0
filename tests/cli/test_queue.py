"""Prompts that find the slot taken: they wait for their turn, or they interrupt.

# covers A1 A3 A7 A44 B1 B5 B6 B15 B25 B56
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.store.tree import Tree
from agentrun.testing import trees

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
NEVER_STARTED = ["run.accepted", "run.cancel_requested", "run.finished"]


@pytest.fixture
def busy(home: Home) -> str:
    """A session whose run-1 is held in the middle of a tool call; every other run is over in no time."""
    home.tool("wait", home.gate())
    home.model(
        {"ifContains": "hold", "text": "working", "calls": [{"name": "wait"}]},
        {"text": "a report"},
        {"text": "a second thought"},
        {"text": "a third one"},
    )
    session = home.new()
    home.wait_for_event(home.detach(session, "hold"), "tool.started")
    return str(session)


def _queue(home: Home, session: str, text: str, *more: str) -> str:
    return str(home.detach(session, text, "--if-busy", "queue", *more))


def _ends(home: Home, session: str) -> list[str]:
    """The runs in the order in which their ends were told."""
    return [message["runId"] for message in home.messages(session) if message["mode"] in ("report", "ended")]


def _types(home: Home, run: str) -> list[str]:
    return [event["type"] for event in home.events(run)]


def _wait_until_queued(home: Home, run: str) -> None:
    home.wait_for_event(run, "run.accepted")
    home.wait_for_status(run, "queued")


def _die_at_start(home: Home) -> dict[str, str]:
    """An environment in which executors that are started detached die before they begin."""
    (home.path / "sitecustomize.py").write_text(
        "import os, sys\nif 'agentrun.cli.detached' in sys.orig_argv: os._exit(1)\n"
    )
    return {"PYTHONPATH": str(home.path)}


# --- the queue


def test_first_come_first_served_detached_and_whoever_frees_the_slot_starts_the_next(home: Home, busy: str) -> None:
    runs = [_queue(home, busy, f"prompt {number}") for number in range(2, 5)]
    assert runs == [f"{busy}/run-{number}" for number in range(2, 5)]
    assert [home.status(run) for run in runs] == ["queued"] * 3
    assert [home.view(run)["executor"] for run in runs] == ["none"] * 3
    home.open_gate()
    home.wait_for_status(runs[-1], "completed")
    assert _ends(home, busy) == ["run-1", "run-2", "run-3", "run-4"]
    for run in runs:
        assert len(home.events(run, "run.lease_acquired")) == 1
    assert home.executor(runs[0]) != home.executor(runs[1])


def test_a_process_that_waits_executes_its_own_run_and_no_other(home: Home, busy: str) -> None:
    first = home.start("send", busy, "two", "--if-busy", "queue")
    _wait_until_queued(home, f"{busy}/run-2")
    _queue(home, busy, "three")
    last = home.start("send", busy, "four", "--if-busy", "queue")
    _wait_until_queued(home, f"{busy}/run-4")
    assert [home.view(f"{busy}/{number}")["executor"] for number in (2, 3, 4)] == ["alive", "none", "alive"]
    home.open_gate()
    for process in (first, last):
        ended = process.end()
        assert (ended.code, ended.text) == (0, "a report\n"), ended.said
    assert _ends(home, busy) == ["run-1", "run-2", "run-3", "run-4"]
    assert [home.executor(f"{busy}/run-{number}") for number in (2, 4)] == [first.pid, last.pid]
    assert home.executor(f"{busy}/run-3") not in (first.pid, last.pid)


def test_on_a_terminal_it_says_behind_which_run_it_waits(home: Home, busy: str) -> None:
    home.run("cancel", _queue(home, busy, "two"))
    terminal = home.terminal("send", busy, "three", "--if-busy", "queue")
    terminal.wait_for("queued behind run-1 (running)")
    home.open_gate()
    assert terminal.end() == 0
    assert "a report" in terminal.text


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("way", ["pipe", "terminal"])
def test_a_signal_to_a_process_that_waits_cancels_its_run_at_once(
    home: Home, busy: str, until: Until, number: int, way: str
) -> None:
    sending = (home.start if way == "pipe" else home.terminal)("send", busy, "two", "--if-busy", "queue")
    _wait_until_queued(home, f"{busy}/run-2")
    if way == "terminal":
        sending.wait_for("queued behind run-1")
    else:
        # It is at its waiting once it has caught the signals.
        until(lambda: _catches(sending.pid, number), "it catching the signals")
    os.kill(sending.pid, number)
    ended = sending.end()
    assert (ended if way == "terminal" else ended.code) == SIGNALS[signal.Signals(number)]
    assert _types(home, f"{busy}/run-2") == NEVER_STARTED
    (asked,) = home.events(f"{busy}/run-2", "run.cancel_requested")
    assert (asked["payload"]["intent"], asked["payload"]["via"]) == ("signal", "signal")
    assert asked["payload"]["actor"]["pid"] == sending.pid
    assert home.view(f"{busy}/2")["returnedInputs"] == [2]
    assert home.status(f"{busy}/run-1") == "running"
    home.open_gate()
    home.wait_for_status(f"{busy}/run-1", "completed")


def _catches(pid: int, number: int) -> bool:
    """Whether it has a handler of its own for the signal: it gets them one after the other, from SIGINT to SIGHUP."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        caught = int(next(line for line in status if line.startswith("SigCgt")).split()[1], 16)
    # Python itself catches SIGINT from its start.
    return all(caught >> (each - 1) & 1 for each in (number, signal.SIGTERM))


def test_a_queued_run_is_cancelled_at_once_and_its_process_told_so(home: Home, busy: str) -> None:
    waiting = home.start("send", busy, "two", "--if-busy", "queue")
    _wait_until_queued(home, f"{busy}/run-2")
    third = _queue(home, busy, "three")
    assert home.run("cancel", f"{busy}/2", "--reason", "not any more").code == 0
    ended = waiting.end()
    assert (ended.code, ended.out) == (3, b"")
    assert "not any more" in ended.said
    assert _types(home, f"{busy}/run-2") == NEVER_STARTED
    home.open_gate()
    home.wait_for_status(third, "completed")
    assert _ends(home, busy) == ["run-2", "run-1", "run-3"]


def test_a_run_whose_process_died_while_it_waited_is_started_by_whoever_frees_the_slot(home: Home, busy: str) -> None:
    waiting = home.start("send", busy, "two", "--if-busy", "queue")
    _wait_until_queued(home, f"{busy}/run-2")
    waiting.signal(signal.SIGKILL)
    waiting.end()
    assert (home.view(f"{busy}/2")["status"], home.view(f"{busy}/2")["executor"]) == ("queued", "none")
    home.open_gate()
    home.wait_for_status(f"{busy}/run-2", "completed")


@pytest.mark.parametrize("how", ["queue", "follow-up", "steer", "refused"])
def test_a_queued_run_that_nobody_drives_is_started_by_the_next_send(home: Home, until: Until, how: str) -> None:
    home.model({"text": "a report"}, {"text": "more"})
    session = home.new()
    assert home.run("send", session, "one", "--detach", env=_die_at_start(home)).code == 0
    first, second = f"{session}/run-1", f"{session}/run-2"
    assert home.run("send", session, "two", "--if-busy", "queue", "--detach", env=_die_at_start(home)).code == 0
    until(lambda: home.view(first)["executor"] != "alive", "the end of its executor")
    assert [home.status(run) for run in (first, second)] == ["queued", "queued"]
    words = {
        "queue": ["--if-busy", "queue"],
        "follow-up": [],
        "steer": ["--mode", "steer"],
        "refused": ["--mode", "prompt"],
    }
    sent = home.run("send", session, "three", "--detach", *words[how])
    assert sent.code == (7 if how == "refused" else 0)
    home.wait_for_status(second, "completed")
    assert _ends(home, session)[:2] == ["run-1", "run-2"]


def test_who_joins_a_queued_run_watches_it_and_does_not_execute_it(home: Home, until: Until) -> None:
    home.model({"text": "a report"}, {"text": "and more"})
    session = home.new()
    home.run("send", session, "one", "--detach", env=_die_at_start(home))
    until(lambda: home.view(f"{session}/1")["executor"] != "alive", "the end of its executor")
    joining = home.start("send", session, "and more")
    ended = joining.end()
    assert (ended.code, ended.text) == (0, f"{session}/run-1 2 follow-up\n")
    assert home.executor(f"{session}/run-1") != joining.pid


def test_a_process_that_waits_goes_on_when_the_executor_before_it_died_over_its_end(home: Home) -> None:
    """The run ended, and nobody freed the slot: nobody but the one that waits may ever come by."""
    session = home.new()
    (account,) = (home.root / "accounts").iterdir()
    executor = trees.Executor(
        Tree(str(home.root), account.name).session(session),
        trees.accept(Tree(str(home.root), account.name).session(session)).run_id,
    )
    executor.deliver()
    executor.ask_model()
    waiting = home.start("send", session, "two", "--if-busy", "queue")
    _wait_until_queued(home, f"{session}/run-2")
    executor.commit_only()
    ended = waiting.end()
    assert (ended.code, ended.text) == (0, "a report\n")
    assert _ends(home, session) == ["run-1", "run-2"]


# --- what is said to a run that waits for its turn


def test_what_is_said_to_a_queued_run_goes_to_that_run_and_not_to_the_one_at_work(home: Home, busy: str) -> None:
    run = _queue(home, busy, "two")
    assert home.run("steer", run, "only new").text == f"{run} 3 steer\n"
    assert home.run("send", run, "and traffic", "--detach", "--json").docs[0]["mode"] == "follow-up"
    assert home.run("send", run, "and stock", "--mode", "follow-up", "--detach").text == f"{run}\n"
    refused = home.run("send", run, "that one", "--mode", "answer")
    assert refused.code == 7
    assert run in refused.said
    assert {each["state"] for each in home.run("show", run, "--json").docs[0]["inputs"]} == {"waiting"}
    home.open_gate()
    home.wait_for_status(run, "completed")
    delivered = [
        (event["payload"]["mode"], event["payload"]["messageSeqs"], event["payload"]["turnId"])
        for event in home.events(run, "input.delivered")
    ]
    assert delivered == [("prompt", [2], "turn-1"), ("steer", [3], "turn-1"), ("follow-up", [4, 5], "turn-2")]
    assert [each["payload"]["messageSeqs"] for each in home.events(f"{busy}/run-1", "input.delivered")] == [[1]]


def test_what_a_queued_run_was_told_comes_back_with_it(home: Home, busy: str) -> None:
    run = _queue(home, busy, "two")
    home.run("steer", run, "only new")
    assert home.run("cancel", run).code == 0
    assert home.view(run)["returnedInputs"] == [2, 3]
    shown = home.run("show", run, "--json").docs[0]["inputs"]
    assert [(each["messageSeq"], each["state"], each["reason"]) for each in shown] == [
        (2, "returned", "the run ended as cancelled"),
        (3, "returned", "the run ended as cancelled"),
    ]
    assert home.run("show", run).text.count("returned") == 2
    home.open_gate()


def test_what_comes_too_late_for_its_run_never_goes_to_the_one_that_is_active_now(home: Home, busy: str) -> None:
    run = _queue(home, busy, "two")
    home.run("cancel", run)
    before = len(home.messages(busy))
    for more in ([], ["--if-ended", "prompt"]):
        late = home.run("steer", run, "only new", *more)
        assert (late.code, late.out) == (7, b"")
    assert len(home.messages(busy)) == before
    home.open_gate()


# --- the answer


@pytest.mark.parametrize("policy", ["queue", "interrupt"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_answer_names_session_run_number_and_kind(home: Home, busy: str, policy: str, form: str) -> None:
    words = ["--json"] if form == "json" else []
    sent = home.run("send", busy, "two", "--if-busy", policy, "--detach", *words)
    assert sent.code == 0
    if form == "json":
        assert sent.docs == [
            {"type": "accepted", "sessionId": busy, "runId": "run-2", "messageSeq": 2, "mode": "prompt"}
        ]
        assert sent.said == ""
    else:
        assert sent.text == f"{busy}/run-2\n"
        assert f"accepted as prompt #2 of {busy}/run-2 (queued" in sent.said
    home.open_gate()
    home.wait_for_status(f"{busy}/run-2", "completed")


def test_the_answer_of_one_that_stays_names_them_too(home: Home, busy: str) -> None:
    in_words = home.start("send", busy, "two", "--if-busy", "queue")
    _wait_until_queued(home, f"{busy}/run-2")
    in_json = home.start("send", busy, "three", "--if-busy", "queue", "--json")
    _wait_until_queued(home, f"{busy}/run-3")
    home.open_gate()
    assert f"accepted as prompt #2 of {busy}/run-2 (queued behind run-1)" in in_words.end().said
    docs = in_json.end().docs
    assert docs[0] == {"type": "accepted", "sessionId": busy, "runId": "run-3", "messageSeq": 3, "mode": "prompt"}
    assert docs[1:] == home.events(f"{busy}/run-3")


@pytest.mark.parametrize("policy", ["queue", "interrupt"])
def test_a_prompt_said_again_with_its_key_is_the_same_run(home: Home, busy: str, policy: str) -> None:
    words = ("send", busy, "two", "--if-busy", policy, "--key", "k1", "--detach")
    assert {home.run(*words).text for _ in range(3)} == {f"{busy}/run-2\n"}
    assert home.run("send", busy, "other", "--if-busy", policy, "--key", "k1").code == 7
    home.open_gate()
    home.wait_for_status(f"{busy}/run-2", "completed")
    assert home.run(*words).text == f"{busy}/run-2\n"
    assert len(home.events(f"{busy}/run-1", "run.cancel_requested")) == (policy == "interrupt")
    assert [message["text"] for message in home.messages(busy) if message["mode"] == "prompt"] == ["hold", "two"]


def test_who_says_his_queued_prompt_again_waits_with_it(home: Home, busy: str, until: Until) -> None:
    _queue(home, busy, "two", "--key", "k1")
    again = home.start("send", busy, "two", "--if-busy", "queue", "--key", "k1")
    until(lambda: home.view(f"{busy}/2")["executor"] == "alive", "its process")
    home.open_gate()
    ended = again.end()
    assert (ended.code, ended.text) == (0, "a report\n")
    assert home.executor(f"{busy}/run-2") == again.pid


# --- interrupting


def test_an_interrupt_stops_the_run_and_goes_before_those_that_wait(home: Home, busy: str) -> None:
    second = _queue(home, busy, "two")
    interrupting = home.start("send", busy, "now", "--if-busy", "interrupt")
    ended = interrupting.end()
    assert (ended.code, ended.text) == (0, "a report\n"), ended.said
    home.wait_for_status(second, "completed")
    assert _ends(home, busy) == ["run-1", "run-3", "run-2"]
    (asked,) = home.events(f"{busy}/run-1", "run.cancel_requested")
    assert asked["payload"]["intent"] == "interrupt"
    assert asked["payload"]["reason"] == "interrupted by run-3"
    assert asked["payload"]["actor"]["pid"] == interrupting.pid
    assert home.view(f"{busy}/1")["status"] == "cancelled"
    assert home.executor(f"{busy}/run-3") == interrupting.pid
    (prompt,) = [message for message in home.messages(busy) if message["text"] == "now"]
    assert (prompt["accept"]["atHead"], prompt["accept"]["behind"]) == (True, ["run-1", "run-2"])


def test_the_last_interrupt_comes_first(home: Home) -> None:
    home.tool("stubborn", f"trap '' TERM; {home.gate()}", grace="600s")
    home.model({"ifContains": "hold", "calls": [{"name": "stubborn"}]}, {"text": "a report"})
    session = home.new()
    home.detach(session, "hold")
    home.at_gate()
    for text in ("two", "three"):
        assert home.run("send", session, text, "--if-busy", "interrupt", "--detach").code == 0
    _queue(home, session, "four")
    assert home.status(f"{session}/run-1") == "cancelling"
    # It was told once: it is stopping already.
    assert len(home.events(f"{session}/run-1", "run.cancel_requested")) == 1
    home.open_gate()
    home.wait_for_status(f"{session}/run-4", "completed")
    assert _ends(home, session) == ["run-1", "run-3", "run-2", "run-4"]


def _is_waiting(home: Home, session: str, until: Until) -> None:
    assert home.run("send", session, "ask").code == 5


def _is_waiting_for_approval(home: Home, session: str, until: Until) -> None:
    assert home.run("send", session, "write").code == 5


def _is_lost(home: Home, session: str, until: Until) -> None:
    run = home.detach(session, "hold")
    home.at_gate()
    _lose(home, run, until)


def _lose(home: Home, run: str, until: Until) -> None:
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "the executor is gone")


def _is_cancelling_and_lost(home: Home, session: str, until: Until) -> None:
    run = home.detach(session, "hold")
    home.at_gate()
    home.suspend(run, home.executor(run))
    assert home.run("cancel", run).code == 6
    _lose(home, run, until)


def _is_queued(home: Home, session: str, until: Until) -> None:
    home.run("send", session, "one", "--detach", env=_die_at_start(home))
    until(lambda: home.view(f"{session}/1")["executor"] != "alive", "the end of its executor")
    assert home.status(f"{session}/run-1") == "queued"


# What holds the slot without anybody who drives it, and the intents that are stored in it afterwards.
UNDRIVEN = {
    "waits for an answer": (_is_waiting, ["interrupt"]),
    "waits for an approval": (_is_waiting_for_approval, ["interrupt"]),
    "has lost its executor": (_is_lost, ["interrupt"]),
    "was cancelled and lost its executor": (_is_cancelling_and_lost, ["cancel"]),
    "is queued": (_is_queued, ["interrupt"]),
}


@pytest.mark.parametrize("way", ["foreground", "detached"])
@pytest.mark.parametrize("state", UNDRIVEN)
def test_an_interrupt_winds_down_what_nobody_drives(home: Home, until: Until, state: str, way: str) -> None:
    make, intents = UNDRIVEN[state]
    home.tool("wait", home.gate())
    home.tool("write", "echo done", effect="write", approve="ask")
    home.model(
        {"ifContains": "ask", "ask": "which?"},
        {"ifContains": "write", "calls": [{"name": "write"}]},
        {"ifContains": "hold", "calls": [{"name": "wait"}]},
        {"text": "a report"},
    )
    session = home.new()
    make(home, session, until)
    sent = home.run("send", session, "now", "--if-busy", "interrupt", *(["--detach"] if way == "detached" else []))
    assert sent.code == 0, sent.said
    assert sent.text == (f"{session}/run-2\n" if way == "detached" else "a report\n")
    home.wait_for_status(f"{session}/run-2", "completed")
    assert home.status(f"{session}/run-1") == "cancelled"
    asked = home.events(f"{session}/run-1", "run.cancel_requested")
    assert [event["payload"]["intent"] for event in asked] == intents
    assert ("cancelling" in _types(home, f"{session}/run-1")) is False
    assert _ends(home, session) == ["run-1", "run-2"]
    assert home.marked(session) == []


def test_an_interrupt_of_nothing_is_a_prompt(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "one", "--if-busy", "interrupt").text == "a report\n"
    (prompt,) = [message for message in home.messages(session) if message["mode"] == "prompt"]
    assert (prompt["accept"]["atHead"], prompt["accept"]["behind"]) == (False, [])
    assert home.run("send", session, "two", "--if-busy", "queue").text == "a report\n"


def test_a_run_in_its_users_foreground_is_interrupted_like_any_other(home: Home, busy: str) -> None:
    home.open_gate()
    home.wait_for_status(f"{busy}/run-1", "completed")
    home.tool("wait", home.gate("other"))
    working = home.start("send", busy, "hold")
    home.wait_for_event(f"{busy}/run-2", "tool.started")
    assert home.run("send", busy, "now", "--if-busy", "interrupt").code == 0
    ended = working.end()
    assert ended.code == 3
    assert "interrupted by run-3" in ended.said


def test_a_prompt_that_waits_behind_a_lost_run_says_so_and_goes_on_once_it_is_ended(
    home: Home, busy: str, until: Until
) -> None:
    _lose(home, f"{busy}/run-1", until)
    terminal = home.terminal("send", busy, "two", "--if-busy", "queue")
    terminal.wait_for("queued behind run-1 (reconciling)")
    terminal.wait_for("its executor is gone")
    assert home.run("cancel", f"{busy}/1", "--wait").code == 0
    assert terminal.end() == 0
    assert home.status(f"{busy}/run-2") == "completed"
