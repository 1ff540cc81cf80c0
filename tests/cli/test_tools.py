"""Tools of a run, with real processes: at the same time, again, cut off, cancelled, and what is recorded of them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow


def _finished(home: Home, run: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in home.events(run, "tool.finished")]


def test_the_tools_of_one_turn_run_at_the_same_time(home: Home) -> None:
    # Each waits for a file that the other one makes.
    for name, other in (("one", "two"), ("two", "one")):
        home.tool(name, f"touch {home.path}/{name}; {home.gate(other)}; echo {name}")
    home.model({"calls": [{"name": "one"}, {"name": "two"}]}, {"text": "{{op:one}} {{op:two}}"})
    session = home.new()
    sent = home.run("send", session, "x")
    assert sent.code == 0
    assert sent.text.split() == ["one", "two"]
    types = [event["type"] for event in home.events(session) if event["type"].startswith("tool.")]
    assert types == ["tool.registered"] * 2 + ["tool.started"] * 2 + ["tool.finished"] * 2


def test_one_that_fails_hides_no_sibling(home: Home) -> None:
    # covers A56
    home.tool("good", "sleep 0.1; echo good")
    home.tool("bad", "echo partly; echo why >&2; exit 3")
    home.model({"calls": [{"name": "bad"}, {"name": "good"}, {"name": "none"}]}, {"text": "{{op:good}}"})
    session = home.new()
    report, _, gaps = home.run("send", session, "x").text.partition("\n\n## Gaps\n")
    assert report == "good"
    assert "op-2 bad: failed: exit 3: why" in gaps
    ended = {each["operationId"]: each for each in _finished(home, session)}
    assert [ended[name]["status"] for name in ("op-2", "op-3", "op-4")] == ["failed", "succeeded", "skipped"]
    assert ended["op-2"]["error"] == "exit 3: why"
    assert ended["op-2"]["result"] == "partly\n"
    assert "there is no tool 'none'" in ended["op-4"]["error"]


def test_what_fails_for_now_is_tried_again_within_its_budget(home: Home) -> None:
    count = 'echo x >> {path}; test "$(wc -l < {path})" -gt {fail} || exit 75; echo done'
    home.tool("flaky", count.format(path=home.path / "flaky", fail=1), retries=2)
    home.tool("hopeless", count.format(path=home.path / "hopeless", fail=9), retries=2)
    home.tool("proud", count.format(path=home.path / "proud", fail=1))
    home.model({"calls": [{"name": "flaky"}, {"name": "hopeless"}, {"name": "proud"}]}, {"text": "a report"})
    session = home.new()
    assert home.run("send", session, "x").code == 0
    tried = {name: (home.path / name).read_text().count("x") for name in ("flaky", "hopeless", "proud")}
    assert tried == {"flaky": 2, "hopeless": 3, "proud": 1}
    last = {each["operationId"]: (each["status"], each["attempt"]) for each in _finished(home, session)}
    assert last == {"op-2": ("succeeded", 2), "op-3": ("failed", 3), "op-4": ("failed", 1)}
    assert home.view(f"{session}/1")["usage"]["retries"] == 3


def test_a_retried_action_keeps_its_key(home: Home) -> None:
    script = (
        f'echo "$AGENTRUN_IDEMPOTENCY_KEY" >> {home.path}/keys; test "$(wc -l < {home.path}/keys)" -gt 1 || exit 75'
    )
    home.tool("write", script, effect="write", approve="auto", retries=1)
    home.model({"calls": [{"name": "write"}]}, {"text": "a report"})
    session = home.new()
    assert home.run("send", session, "x").code == 0
    first, second = (home.path / "keys").read_text().splitlines()
    assert first == second == home.events(session, "tool.registered")[0]["payload"]["idempotencyKey"]
    assert first


def test_a_remote_id_is_stored_the_moment_it_is_known(home: Home) -> None:
    home.tool("export", f"""echo '{{"remoteId":"job-7"}}' >&3; {home.gate()}""", effect="write", approve="auto")
    home.model({"calls": [{"name": "export"}]}, {"text": "a report"})
    session = home.new()
    run = home.detach(session, "x")
    (known,) = home.wait_for_event(run, "tool.remote_id")
    assert known["payload"] == {"operationId": "op-2", "remoteId": "job-7"}
    assert _finished(home, run) == []
    assert "remote id job-7" in home.run("show", run).text
    assert home.run("cancel", run, "--wait").code == 0
    unresolved = home.view(run)["unresolvedOperations"]
    assert [(each["operationId"], each["remoteId"]) for each in unresolved] == [("op-2", "job-7")]
    for arguments in (["show", run], ["show", session, "--messages"]):
        assert "job-7" in home.run(*arguments).text
    again = home.run("cancel", run)
    assert again.code == 0
    assert "job-7" in again.said
    assert "unresolved" in home.run("ls").text


def test_a_tool_that_takes_too_long_is_ended(home: Home) -> None:
    home.model({"calls": [{"name": "slow"}]}, {"text": "a report"})
    # Longer on a machine on which it takes so long to begin.
    for timeout in ("200ms", "2s", "20s"):
        home.tool("slow", f"echo begun; sleep 60 & {home.gate()}", timeout=timeout)
        session = home.new()
        assert home.run("send", session, "x").code == 0
        (ended,) = _finished(home, session)
        if ended["result"]:
            break
    assert (ended["status"], ended["result"]) == ("timed_out", "begun\n")
    assert home.marked(session) == []


@pytest.mark.parametrize(
    "script",
    [
        "echo done; setsid sleep 600 & exit 3",
        "echo done; setsid sleep 600 >/dev/null & exit 3",
        "echo done; (setsid sh -c 'sleep 600 & sleep 600' &) ; exit 3",
        "echo done; setsid sh -c 'while :; do echo more 2>/dev/null; sleep 0.1; done' & exit 3",
    ],
)
def test_a_child_that_is_left_behind_does_not_hold_the_call(home: Home, script: str) -> None:
    home.tool("leave", script)
    home.model({"calls": [{"name": "leave"}]}, {"text": "a report"})
    session = home.new()
    # The child would hold it for longer than this command is waited for.
    assert home.run("send", session, "x").code == 0
    (ended,) = _finished(home, session)
    assert ended["status"] == "failed"
    assert ended["error"].startswith("exit 3")
    assert ended["result"].startswith("done\n")
    # A tool may start a service on purpose; what it left is told from what it did by its marks.
    assert "still held the output open" in ended["note"]


def test_a_huge_output_goes_to_blobs(home: Home) -> None:
    home.tool("flood", "yes 0123456789abcde | head -c 8000000")
    home.model({"calls": [{"name": "flood"}]}, {"text": "a report"})
    session = home.new()
    assert home.run("send", session, "x").code == 0
    (ended,) = _finished(home, session)
    assert ended["blob"]["bytes"] == 8_000_000
    assert (home.run_dir(session) / "blobs" / ended["blob"]["sha256"]).stat().st_size == 8_000_000
    assert (home.run_dir(session) / "operations.jsonl").stat().st_size < 100_000
    assert "8000000 bytes" in home.run("show", f"{session}/1").text


def test_a_tool_knows_its_run_and_reads_its_arguments(home: Home) -> None:
    home.tool("tell", "cat; env | grep ^AGENTRUN_ | sort; pwd")
    home.model({"calls": [{"name": "tell", "arguments": {"sql": "select 'ü'"}}]}, {"text": "a report"})
    session = home.new()
    assert home.run("send", session, "x").code == 0
    (ended,) = _finished(home, session)
    arguments, *lines, directory = ended["result"].splitlines()
    assert json.loads(arguments) == {"sql": "select 'ü'"}
    variables = dict(line.split("=", 1) for line in lines)
    assert variables["AGENTRUN_ROOT"] == str(home.root)
    assert variables["AGENTRUN_CONFIG"] == str(home.config)
    assert variables["AGENTRUN_SESSION"] == session
    assert (variables["AGENTRUN_RUN"], variables["AGENTRUN_OPERATION"]) == ("run-1", "op-2")
    assert Path(variables["AGENTRUN_SCRATCH"]).is_dir()
    assert directory == str(home.path)


# --- cancelled


def test_cancel_ends_the_whole_tree_of_a_tool(home: Home, until: Until) -> None:
    beat = home.path / "beat"
    unmarked = f"61.{os.getpid()}"  # found by its argument alone, which no other test run on this machine shares
    script = f"""
    setsid sleep 60 &
    (sleep 60 & sleep 60) &
    trap '' TERM
    sh -c 'setsid sh -c "sleep 60 & exec sleep 60" &'
    env -i sleep {unmarked} &
    while :; do date +%N > {beat}; sleep 0.05; done
    """
    home.tool("work", script, grace="200ms")
    home.model({"calls": [{"name": "work"}]}, {"text": "never"})
    session = home.new()
    run = home.detach(session, "x")
    home.wait_for_event(run, "tool.started")
    until(beat.exists, "its first beat")
    until(lambda: len(home.marked(session)) >= 5 and _runs("sleep", unmarked), "all that it starts in the background")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.marked(session) == []
    before = beat.read_text()
    assert not _runs("sleep", unmarked)
    assert home.status(run) == "cancelled"
    assert home.run("show", run).code == 0
    assert beat.read_text() == before


def _runs(*command: str) -> bool:
    """Whether a process with these arguments is there."""
    wanted = "".join(f"{each}\0" for each in command).encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                return True
    return False


def test_what_has_not_started_never_does(home: Home) -> None:
    count = home.path / "count"
    # Its first attempt fails for now; another one, should the cancel come that late, is there to be stopped.
    home.tool("flaky", f"echo x >> {count}; test $(wc -l < {count}) -gt 1 || exit 75; {home.gate()}", retries=9)
    home.tool("export", f"echo y >> {count}", effect="write", approve="ask")
    home.model({"calls": [{"name": "flaky"}, {"name": "export"}]}, {"text": "never"})
    session = home.new()
    run = home.detach(session, "x")
    home.wait_for_event(run, "tool.finished")
    assert home.run("cancel", run, "--wait").code == 0
    before = count.read_text()
    last = {each["operationId"]: each["status"] for each in _finished(home, run)}
    assert last["op-3"] == "skipped"
    assert last["op-2"] == "cancelled"
    assert "y" not in before
    assert home.events(run)[-1]["type"] == "run.finished"
    assert count.read_text() == before


def test_touching_the_sentinel_does_the_same_as_cancel(home: Home) -> None:
    home.tool("work", home.gate())
    home.model({"calls": [{"name": "work"}]}, {"text": "never"})
    session = home.new()
    run = home.detach(session, "x")
    home.wait_for_event(run, "tool.started")
    (home.run_dir(run) / "cancel").touch()
    home.wait_for_status(run, "cancelled")
    (asked,) = home.events(run, "run.cancel_requested")
    assert asked["payload"]["via"] == "sentinel"
    assert home.marked(session) == []


def test_stopping_one_run_touches_no_other(home: Home) -> None:
    home.tool("work", home.gate())
    home.model({"calls": [{"name": "work"}]}, {"text": "a report"})
    first, second = home.new(), home.new()
    runs = [home.detach(first, "x"), home.detach(second, "x")]
    home.at_gate(2)
    assert home.run("cancel", first, "--wait").code == 0
    assert home.marked(first) == []
    assert home.marked(second)
    assert home.view(runs[1])["status"] == "running"
    home.open_gate()
    home.wait_for_status(runs[1], "completed")
