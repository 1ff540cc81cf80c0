"""`recover`: a run whose executor was killed goes on, ends, or says what is missing; nothing happens twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from agentrun.clock import seconds_of
from agentrun.records.message import ENDED
from agentrun.states import EventType
from agentrun.store.redo import writing
from agentrun.store.tree import Tree
from tests.cli.conftest import is_gone

Home = Any
Until = Callable[..., Any]
Doc = dict[str, Any]

pytestmark = pytest.mark.slow
NOT_OVER = 6


def kill(home: Home, run: str, until: Until) -> None:
    """kill -9 of a run's executor, as soon as it is gone."""
    pid = home.executor(run)
    os.kill(pid, signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "the executor is gone")


def calling(home: Home, tool: str, *, report: str = "") -> None:
    home.model({"calls": [{"name": tool}]}, {"text": report or f"the report: {{{{op:{tool}}}}}"})


def effects(home: Home) -> list[str]:
    path = home.path / "effects"
    return path.read_text().split() if path.exists() else []


def write_tool(home: Home, name: str = "export", **settings: object) -> None:
    """A tool that acts, says so in `effects` with its key, and then waits for the gate."""
    script = f'echo "$AGENTRUN_IDEMPOTENCY_KEY" >>"{home.path}/effects"; {home.gate()}; echo exported'
    home.tool(name, script, effect="write", approve="auto", **settings)


def recovered(home: Home, code: int = 0) -> list[Doc]:
    done = home.run("recover", "--json")
    assert done.code == code, done
    return list(done.docs)


def ended(home: Home, run: str, status: str = "completed") -> Doc:
    home.wait_for_status(run, status)
    view = dict(home.view(run))
    assert view["status"] == status
    return view


# covers A58 A59 A60 A61 B33 B34 B36
def test_a_run_that_died_at_its_model_request_goes_on(home: Home, until: Until) -> None:
    home.model({"text": "word " * 2000, "delayMs": 50}, {"text": "the report"})
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "model.request.started")
    kill(home, run, until)
    # The turn of the script was not used: there is no reply.
    (done,) = recovered(home)
    assert (done["outcome"], done["runId"]) == ("continued", "run-1")
    events = home.wait_for_event(run, "model.request.started", count=2)
    assert [event["payload"]["operationId"] for event in events] == ["op-1", "op-2"]
    (lost,) = home.events(run, "operation.reconciled")
    assert (lost["payload"]["status"], lost["payload"]["error"]) == ("cancelled", "executor lost")
    assert [event["generation"] for event in home.events(run, "run.lease_acquired")] == [1, 2, 3]
    assert [event["payload"]["attempt"] for event in home.events(run, "run.lease_acquired")] == [1, 1, 2]
    assert home.run("cancel", run, "--wait").code == 0


# covers A60 A61
@pytest.mark.parametrize("retries", [0, 1])
def test_a_read_that_was_under_way_is_made_again_as_far_as_its_retries_allow(
    retries: int, home: Home, until: Until
) -> None:
    home.tool("look", f"echo looked >>'{home.path}/effects'; {home.gate()}; echo rows", retries=retries)
    calling(home, "look")
    run = home.detach(home.new(), "go")
    until(lambda: effects(home), "the tool is at work")
    kill(home, run, until)
    recovered(home)
    home.open_gate()
    ended(home, run)
    report = home.run("show", run, "--report").text
    if retries:
        assert report.strip() == "the report: rows"
        assert [event["payload"]["attempt"] for event in home.events(run, "tool.started")] == [1, 2]
        assert len(home.events(run, "tool.registered")) == 1
    else:
        assert "The call was stopped: executor lost" in report
        assert len(home.events(run, "tool.started")) == 1


# covers A35 A60 A61 A62 B38
def test_a_write_of_which_nobody_knows_waits_for_the_users_word(home: Home, until: Until) -> None:
    write_tool(home)
    calling(home, "export")
    run = home.detach(home.new(), "go")
    until(lambda: effects(home), "the tool is at work")
    kill(home, run, until)
    home.open_gate()
    for _ in range(2):
        (left,) = recovered(home, NOT_OVER)
        assert (left["outcome"], left["status"], left["unknown"]) == ("left", "reconciling", ["op-2"])
        assert f"agentrun reconcile {run} op-2 --as" in left["hint"]
    first, then = f"agentrun reconcile {run} op-2 --as succeeded|failed|cancelled", f"agentrun resume {run}"
    for words in (("show", run), ("wait", run), ("send", run.partition("/")[0], "more"), ("resume", run)):
        done = home.run(*words)
        said = done.text + done.said
        assert first in said, words
        assert words[0] == "resume" or said.index(first) < said.index(then), words
    before = len(home.events(run))
    assert home.marked() == [], "what the lost executor left is running"

    (listed,) = home.run("reconcile", run, "--json").docs
    assert (listed["operationId"], listed["name"], listed["status"]) == ("op-2", "export", "unknown")
    assert [listed["idempotencyKey"]] == effects(home)
    told = home.run("reconcile", run).text
    assert "op-2" in told
    assert "no remote id" in told

    said = home.run("reconcile", run, "op-2", "--as", "succeeded", "--note", "the file is there")
    assert said.code == 0, said.said
    assert len(home.events(run)) == before + 1, "it starts nothing"
    (event,) = home.events(run, "operation.reconciled")[-1:]
    assert event["payload"]["note"] == "the file is there"
    assert event["payload"]["actor"]["user"]
    recovered(home)
    ended(home, run)
    assert len(effects(home)) == 1
    assert "the file is there" in home.run("show", run, "--report").text
    assert home.run("reconcile", run, "--json").docs == []


def probing(home: Home, *answers: Doc) -> None:
    """A probe that gives these answers, one each time, then the last again; what it was asked is in `asked`."""
    for number, answer in enumerate(answers):
        (home.path / f"answer-{number}").write_text(json.dumps(answer))
    probe = (
        f'cat >>"{home.path}/asked"; n=$(wc -l <"{home.path}/asked"); n=$((n-1)); [ $n -lt {len(answers)} ] || '
        f'n={len(answers) - 1}; cat "{home.path}/answer-$n"'
    )
    home.tool(
        "export",
        f'echo "$AGENTRUN_IDEMPOTENCY_KEY" >>"{home.path}/effects"; '
        f'echo \'{{"remoteId": "job-7"}}\' >&3; {home.gate()}',
        effect="write",
        approve="auto",
        probe=["/bin/sh", "-c", probe],
    )


# covers A34 A60
@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_a_probe_settles_a_write(status: str, home: Home, until: Until) -> None:
    probing(home, {"status": status, "result": "12 rows"})
    calling(home, "export")
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.remote_id")
    kill(home, run, until)
    recovered(home)
    ended(home, run)
    asked = json.loads((home.path / "asked").read_text().splitlines()[0])
    assert asked == {"remoteId": "job-7", "idempotencyKey": effects(home)[0]}
    (event,) = home.events(run, "operation.reconciled")
    assert event["payload"]["status"] == status
    assert event["payload"]["evidence"] == f"its probe said: {status}"
    report = home.run("show", run, "--report").text
    assert report.startswith("the report: 12 rows") if status == "succeeded" else "The call failed" in report
    assert len(effects(home)) == 1


# covers A61
def test_a_job_that_still_runs_outside_is_asked_about_again(home: Home, until: Until) -> None:
    probing(home, {"status": "running"}, {"status": "unknown"}, {"status": "succeeded", "result": "done"})
    calling(home, "export")
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.remote_id")
    kill(home, run, until)
    recovered(home, NOT_OVER)
    before = len(home.events(run))
    recovered(home, NOT_OVER)
    assert len(home.events(run)) == before, "nothing became known, so nothing is recorded"
    recovered(home)
    ended(home, run)
    assert home.run("show", run, "--report").text.strip() == "the report: done"
    assert len(effects(home)) == 1


def test_a_run_that_was_told_to_stop_is_only_wound_down(home: Home, until: Until) -> None:
    write_tool(home)
    calling(home, "export")
    run = home.detach(home.new(), "go")
    until(lambda: effects(home), "the tool is at work")
    home.suspend(run, home.executor(run))
    assert home.run("cancel", run).code == NOT_OVER
    kill(home, run, until)
    assert home.view(run)["status"] == "cancelling"
    (done,) = recovered(home)
    assert (done["outcome"], done["status"]) == ("ended", "cancelled")
    assert home.view(run)["unresolvedOperations"][0]["operationId"] == "op-2"


# covers A63
# case C11
def test_a_run_that_kills_its_executor_each_time_stops_at_the_cap(home: Home, until: Until) -> None:
    home.settings(top="max_attempts = 3")
    home.tool("bomb", f"echo boom >>'{home.path}/effects'; kill -9 $PPID; sleep 60", effect="read", retries=9)
    calling(home, "bomb")
    run = home.detach(home.new(), "go")
    for _ in range(20):
        until(lambda: home.view(run)["executor"] in ("lost", "none"), "the executor is gone")
        assert home.run("recover").code == 0
    view = ended(home, run, "failed")
    assert "lost in each of 3 attempts (max_attempts = 3)" in view["reason"]
    assert len(effects(home)) == 3
    assert [event["payload"]["attempt"] for event in home.events(run, "tool.started")] == [1, 2, 3]
    assert len(home.events(run, "run.reconciling")) == 3
    assert len(home.events(run)) < 40
    assert home.marked() == []


# covers A59 B35 B37
def test_eight_at_once_take_a_lost_run_up_once(home: Home, until: Until) -> None:
    home.tool("look", f"echo looked >>'{home.path}/effects'; echo rows", retries=0)
    home.tool("hold", home.gate())
    home.model({"calls": [{"name": "hold"}]}, {"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.started")
    kill(home, run, until)
    crowd = [home.start("recover", "--json") for _ in range(8)]
    outcomes = [doc["outcome"] for each in crowd for doc in each.end().docs]
    assert outcomes == ["continued"]
    ended(home, run)
    assert effects(home) == ["looked"]
    assert [event["generation"] for event in home.events(run, "run.lease_acquired")] == [1, 2, 3]


# case C10
# covers A59 A63
def test_eight_at_once_leave_a_live_run_alone(home: Home) -> None:
    _leave_a_live_run_alone(home, freezes=2, passes=1)


# case C10
@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_eight_loops_of_twenty_seconds_leave_a_live_run_alone(home: Home) -> None:
    _leave_a_live_run_alone(home, freezes=3, passes=0, lease=10)


def _leave_a_live_run_alone(home: Home, *, freezes: int, passes: int, lease: int = 4) -> None:
    """The executor stands still for half a lease, and again, while eight processes look for lost runs.

    Each of them makes so many passes, or as many as the freezes give time for.
    """
    # It is renewed each third of it; a busy machine takes some of what is left after half of it.
    home.settings(top=f'lease = "{lease}s"')
    home.tool("look", f"echo looked >>'{home.path}/effects'; {home.gate()}; echo rows")
    calling(home, "look")
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.started")
    pid, over, said = home.executor(run), home.path / "over", home.path / "said"
    step = f"n=$((n + 1)); agentrun recover --json >>'{said}' 2>&1 || echo \"exit $?\" >>'{said}'"
    loop = f"while [ ! -e '{over}' ]; do {step}; done" if not passes else f"for n in $(seq {passes}); do {step}; done"
    freeze = f"kill -STOP {pid}; sleep {lease / 2}; kill -CONT {pid}; sleep {lease / 5}"
    eight = f"for each in 1 2 3 4 5 6 7 8; do (n=0; {loop}) & done"
    script = f"{eight}\nfor each in $(seq {freezes}); do {freeze}; done\ntouch '{over}'\nwait"
    shell = home.shell(script, patience=150)
    assert (shell.code, shell.said) == (0, "")
    assert said.read_text() == ""
    assert home.view(run)["executor"] == "alive"
    home.open_gate()
    assert ended(home, run)["generation"] == 1
    assert effects(home) == ["looked"]


def test_a_run_whose_turn_it_is_and_that_nobody_drives_is_started(home: Home, until: Until) -> None:
    session = home.new()
    sent = home.detach(session, "go")
    executor = home.executor(sent)
    ended(home, sent)
    # It frees the slot after its end, and would start itself whatever waits for that.
    until(lambda: is_gone(executor), "its executor has left")
    # The executor of the next one died before it had claimed it.
    path = home.session_dir(session)
    prompt = json.loads((path / "messages.jsonl").read_text().splitlines()[0])
    prompt |= {"seq": 3, "runId": "run-2"}
    prompt["accept"]["behind"] = []
    with (path / "messages.jsonl").open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    (done,) = recovered(home)
    assert (done["outcome"], done["runId"]) == ("started", "run-2")
    ended(home, f"{session}/run-2")


def test_a_queued_run_is_found_when_the_one_that_freed_the_slot_died_before_it_passed_it_on(
    home: Home, until: Until
) -> None:
    """The slot is free and the conversation ends with how the run before it ended: nothing points to the queue."""
    home.tool("hold", home.gate())
    home.model({"calls": [{"name": "hold"}]}, {"text": "the report"})
    first = home.detach(home.new(), "go")
    home.wait_for_event(first, "tool.started")
    session = first.partition("/")[0]
    second = home.detach(session, "and then", "--if-busy", "queue")
    kill(home, first, until)
    place = Tree(str(home.root), home.session_dir(session).parent.parent.name).session(session)
    with writing(place) as writer:  # what an executor does that dies over ending its run
        run_dir = place.run("run-1")
        lease = run_dir.take_over(writer, lease_seconds=60)
        end = {"terminalStatus": "failed", "reason": "it was lost"}
        run_dir.append(lease, writer, EventType.RUN_FAILING, {"reason": "it was lost"})
        run_dir.append(lease, writer, EventType.RUN_FINISHED, end)
        writer.append_message("run-1", "system", ENDED, "run-1 failed: it was lost")
        writer.free_slot()
    home.open_gate()
    (done,) = recovered(home)
    assert (done["outcome"], done["runId"]) == ("started", "run-2")
    ended(home, second)


# covers B38 B62
def test_an_action_has_the_same_key_in_every_attempt(home: Home, until: Until) -> None:
    home.tool("look", f'echo "$AGENTRUN_IDEMPOTENCY_KEY" >>"{home.path}/effects"; {home.gate()}', retries=5)
    calling(home, "look")
    run = home.detach(home.new(), "go")
    for number in (1, 2):
        until(lambda number=number: len(effects(home)) == number, "the tool is at work")
        kill(home, run, until)
        recovered(home)
    home.open_gate()
    ended(home, run)
    (registered,) = home.events(run, "tool.registered")
    assert effects(home) == [registered["payload"]["idempotencyKey"]] * 3


# covers A47 A66
def test_what_is_ended_with_a_lost_run_is_its_own(home: Home, until: Until) -> None:
    home.tool("hold", f"echo $$ >>'{home.path}'/pid-$AGENTRUN_SESSION; {home.gate()}", retries=3)
    calling(home, "hold")
    runs = [home.detach(home.new(), "go") for _ in range(2)]
    files = [home.path / f"pid-{run.partition('/')[0]}" for run in runs]
    lost, other = (until(lambda file=file: file.exists() and file.read_text().split(), "its tool") for file in files)
    kill(home, runs[0], until)
    recovered(home)
    assert os.path.exists(f"/proc/{other[0]}")
    assert int(lost[0]) not in home.marked(runs[0].partition("/")[0])
    home.open_gate()
    ended(home, runs[0])
    assert ended(home, runs[1])["generation"] == 1
    assert files[1].read_text().split() == other


# covers B45
def test_a_question_whose_time_is_over_ends_its_run(home: Home, until: Until) -> None:
    home.settings(agent='answer_timeout = "1s"')
    home.model({"ask": "which?"})
    session = home.new()
    assert home.run("send", session, "go").code == 5
    until(lambda: home.view(f"{session}/1")["overdue"], "its time is over")
    (done,) = recovered(home)
    assert (done["outcome"], done["status"]) == ("ended", "timed_out")


def test_the_time_that_a_lost_executor_used_counts(home: Home, until: Until) -> None:
    home.settings(top='lease = "300ms"')
    home.tool("hold", home.gate(), retries=5)
    calling(home, "hold")
    # A machine may be too slow to kill it between that much work and the end of its time: then it gets more of both.
    for limit in (1.5, 6.0, 24.0):
        run = home.detach(home.new(), "go", "--timeout", f"{round(1000 * limit)}ms")
        if _lost_after(home, run, 0.6 * limit, until):
            break
    (done,) = recovered(home)
    assert done["outcome"] == "continued"
    home.wait_for_status(run, "timed_out")
    assert home.view(run)["usage"]["executingMs"] >= 1000 * limit
    (told,) = home.events(run, "run.reconciling")
    assert told["payload"]["executingMs"] > 600 * limit
    *_, again = home.events(run, "run.started")
    assert seconds_of(again["payload"]["timeoutAt"]) - seconds_of(again["at"]) < 0.4 * limit, "what is left"


def _lost_after(home: Home, run: str, seconds: float, until: Until) -> bool:
    """Kills the executor of a run once it has worked so long; False if the run was over before."""

    def used() -> float:
        try:
            return float(json.loads((home.run_dir(run) / "lease.json").read_bytes())["executingMs"]) / 1000
        except FileNotFoundError:  # it is just ending
            return 0

    def is_over() -> bool:
        return home.status(run) == "timed_out"

    home.at_gate()
    until(lambda: used() > seconds or is_over(), "it has worked")
    with suppress(ProcessLookupError):
        os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] in ("lost", "none"), "the executor is gone")
    return not is_over()


def test_dry_run_says_that_a_write_of_which_nobody_can_tell_would_keep_the_run(home: Home, until: Until) -> None:
    write_tool(home)
    calling(home, "export")
    run = home.detach(home.new(), "go")
    until(lambda: effects(home), "the tool is at work")
    kill(home, run, until)
    foreseen = home.run("recover", "--dry-run", "--json")
    (left,) = recovered(home, NOT_OVER)
    assert foreseen.code == NOT_OVER
    (told,) = foreseen.docs
    assert [told[key] for key in ("outcome", "reason")] == [left[key] for key in ("outcome", "reason")]


def test_dry_run_says_what_would_be_done_and_writes_nothing(home: Home, until: Until) -> None:
    write_tool(home, probe=["/bin/true"])
    calling(home, "export")
    run = home.detach(home.new(), "go")
    until(lambda: effects(home), "the tool is at work")
    kill(home, run, until)

    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(home.root.rglob("*")) if path.is_file()}

    before = contents()
    done = home.run("recover", "--dry-run", "--json")
    assert (done.code, done.docs[0]["outcome"], done.docs[0]["dryRun"]) == (0, "continued", True)
    assert "op-2 (export)" in home.run("recover", "--dry-run").text
    assert contents() == before


def test_a_run_whose_configuration_is_gone_stays_as_it_is(home: Home, until: Until) -> None:
    home.tool("hold", home.gate())
    calling(home, "hold")
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.started")
    kill(home, run, until)
    moved = home.config.rename(home.path / "elsewhere.toml")
    before = home.events(run)
    (left,) = recovered(home, NOT_OVER)
    assert (left["outcome"], str(home.config) in left["reason"]) == ("left", True)
    assert left["status"] == "reconciling"
    assert "stays reconciling" in home.run("recover").text
    refused = home.run("resume", run, "--json")
    assert (refused.code, json.loads(refused.said)["error"]["code"]) == (13, "config")
    assert str(home.config) in refused.said
    assert home.events(run) == before
    moved.rename(home.config)
    home.open_gate()
    recovered(home)
    ended(home, run)


# case C9
def test_every_command_says_that_the_run_is_lost_and_what_to_type(home: Home, until: Until) -> None:
    home.tool("hold", home.gate())
    calling(home, "hold")
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.started")
    kill(home, run, until)
    view = home.view(run)
    assert (view["status"], view["executor"]) == ("reconciling", "lost")
    for words in (("show", run), ("show", "-f", run), ("wait", run), ("ls",)):
        done = home.run(*words)
        assert "lost" in done.text + done.said or "gone" in done.text + done.said, words
        assert "agentrun recover" in done.text + done.said, words
    refused = home.run("send", run.partition("/")[0], "more")
    assert refused.code == 7
    assert f"agentrun resume {run}" in refused.said


def test_a_service_takes_up_what_is_lost_while_it_watches_and_ends_when_told(home: Home, until: Until) -> None:
    home.tool("hold", home.gate(), retries=3)
    calling(home, "hold")
    service = home.start("recover", "--watch", "--json")
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.started")
    os.kill(home.executor(run), signal.SIGKILL)
    home.wait_for_event(run, "tool.started", count=2)
    home.open_gate()
    ended(home, run)
    service.signal(signal.SIGTERM)
    done = service.end()
    assert (done.code, [doc["outcome"] for doc in done.docs]) == (0, ["continued"])


def test_a_configuration_that_was_moved_is_known_by_what_it_says(home: Home, until: Until) -> None:
    """As after `mv` of a tree with the configuration in it: what waits in it can be answered, what is lost goes on."""
    home.tool("look", f"{home.gate()}; echo rows", retries=1)
    home.model({"ask": "which?"}, {"calls": [{"name": "look"}]}, {"text": "rows: {{op:look}}"})
    session = home.new()
    assert home.run("send", session, "go").code == 5
    new = home.path / "elsewhere"
    new.mkdir()
    for name in ("agentrun.toml", "script.json"):
        (home.path / name).rename(new / name)
    refused = home.run("send", session, "all", env={"AGENTRUN_CONFIG": ""})
    assert refused.code == 13
    assert "--config FILE" in refused.said
    named = ("--config", str(new / "agentrun.toml"))
    assert home.run("send", session, "all", "--detach", *named).code == 0
    home.wait_for_event(f"{session}/run-1", "run.lease_acquired", 2)
    os.kill(home.executor(f"{session}/run-1"), signal.SIGKILL)
    until(lambda: home.view(f"{session}/run-1")["executor"] == "lost", "its end")
    recovered = home.run("recover", *named)
    assert (recovered.code, "goes on" in recovered.text) == (0, True), recovered
    home.open_gate()
    assert home.run("wait", session).code == 0
    # One that says something else is not the file that was moved.
    (new / "agentrun.toml").write_text("# another one\n" + (new / "agentrun.toml").read_text())
    home.run("send", session, "go", *named)
    (new / "agentrun.toml").rename(new / "other.toml")
    (new / "other.toml").write_text("# again another one\n" + (new / "other.toml").read_text())
    assert home.run("send", session, "all", "--config", str(new / "other.toml")).code == 13
