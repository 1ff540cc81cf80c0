"""What an executor left in a container cannot be seen from another one: the run stays until it is known to be gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PATIENCE, Result, is_gone, until

Home = Any

NOT_OVER, CONFIG = 6, 13
NAMESPACES = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child"]
CONTAINER = [*NAMESPACES, "--mount-proc"]
# A sandbox with the processes of the machine: they are listed, and not to be looked into.
SANDBOX = ["unshare", "--user", "--map-current-user"]
# A container in which more than one command runs: its first process is none of them.
SEVERAL = 'command=$1; shift; "$command" "$@"; exec sleep 600'


def _works(argv: list[str]) -> bool:
    try:
        return subprocess.run([*argv, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not _works(CONTAINER), reason="no namespaces of one's own here")]


@pytest.fixture
def contained(home: Home) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a container that runs a command and then stays; its end is that of all that is in it."""
    open_containers: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        argv = [*CONTAINER, "/bin/sh", "-c", SEVERAL, "sh", *home.argv(*words)]
        started = subprocess.Popen(argv, env=home.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        open_containers.append(started)
        return started

    yield start
    for each in open_containers:
        end(each)


def end(container: subprocess.Popen[bytes]) -> None:
    container.kill()
    container.wait()


@contextmanager
def ended_after(container: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with container:
        try:
            yield container
        finally:
            container.kill()


def elsewhere(home: Home, *words: str, namespaces: list[str] = CONTAINER) -> Result:
    """Runs a command in a container of its own."""
    argv = [*namespaces, *home.argv(*words)]
    done = subprocess.run(
        argv, env=home.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


def executor_of(home: Home, run: str) -> int:
    """The number here of a detached executor, which has another one where it is."""
    mark = f"AGENTRUN_DETACHED_RUN={run}".encode()
    own = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if mark in environment_of(pid)]
    (executor,) = [pid for pid in own if b"agentrun.cli.detached" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return executor


def environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def tool_of(home: Home) -> int:
    """The one tool that is at a gate; what it waits with there, a child of it each time, comes and goes."""
    marked = home.marked()
    (tool,) = [pid for pid in marked if parent_of(pid) not in (None, *marked)]
    return int(tool)


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def kill_executor(home: Home, run: str) -> None:
    pid = executor_of(home, run)
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid), "the executor's end")
    until(lambda: home.view(run)["executor"] == "lost", "its lock being free")


@pytest.fixture
def left_behind(home: Home, contained: Callable[..., subprocess.Popen[bytes]]) -> tuple[str, subprocess.Popen[bytes]]:
    """A run whose executor was killed in a container, where its tool works on; and the container."""
    home.tool("work", home.gate(), retries=3)
    home.model({"calls": [{"name": "work"}]}, {"text": "done"})
    session = home.new()
    container = contained("send", session, "go", "--detach")
    home.at_gate()
    kill_executor(home, f"{session}/run-1")
    return f"{session}/run-1", container


# covers A43 A51 A52 A62
def test_a_run_stays_cancelling_as_long_as_its_tool_may_live_where_nobody_looks(
    home: Home, left_behind: tuple[str, subprocess.Popen[bytes]]
) -> None:
    run, _ = left_behind
    tool = tool_of(home)
    told = elsewhere(home, "cancel", run, "--wait")
    assert (told.code, told.text) == (NOT_OVER, f"{run} cancelling\n")
    assert "which cannot be seen from here" in told.said
    assert f"agentrun cancel {run} --gone" in told.said
    assert not is_gone(tool)
    view = home.view(run)
    (name,) = view["survivors"]
    assert name.startswith("what ")
    assert (view["status"], view["executor"]) == ("cancelling", "lost")
    assert [each["generation"] for each in view["whereabouts"]] == [1]
    assert name in home.run("show", run).text
    # Neither does anybody else there end it, and what is known is not written down again.
    events = len(home.events(run))
    recovered = elsewhere(home, "recover", "--json")
    assert (recovered.code, [doc["outcome"] for doc in recovered.docs]) == (NOT_OVER, ["left"])
    assert "--gone" in recovered.docs[0]["hint"]
    assert elsewhere(home, "send", run.split("/")[0], "next").code != 0
    assert len(home.events(run)) == events
    # From here it can be seen, and is ended.
    assert home.run("cancel", run, "--wait").code == 0
    assert is_gone(tool)
    stored = json.loads((home.run_dir(run) / "run.json").read_bytes())
    assert (stored["status"], stored["survivors"], stored.get("whereabouts")) == ("cancelled", [], None)


# covers A52
def test_it_is_named_once_by_the_first_cancel_also_after_somebody_there_had_looked_after_the_run(
    home: Home, contained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    home.tool("export", home.gate(), effect="write", approve="auto")
    home.model({"calls": [{"name": "export"}]}, {"text": "done"})
    session = home.new()
    run = f"{session}/run-1"
    contained("send", session, "go", "--detach")
    home.at_gate()
    kill_executor(home, run)
    assert elsewhere(home, "recover").code == NOT_OVER
    told = elsewhere(home, "cancel", run, "--wait")
    assert (told.code, told.said.count("--gone")) == (NOT_OVER, 1)
    assert len(home.events(run, "run.cancel_requested")) == 1
    assert len(home.events(run, "run.survivors_found")) == 1
    shown = home.run("show", run).text
    assert f"agentrun cancel {run} --gone" in shown
    assert "end it with" not in shown, "that was just tried"


def test_the_user_says_that_the_container_is_gone(home: Home, left_behind: tuple[str, subprocess.Popen[bytes]]) -> None:
    run, container = left_behind
    assert elsewhere(home, "cancel", run).code == NOT_OVER
    end(container)
    assert elsewhere(home, "cancel", run, "--wait").code == NOT_OVER, "that is not to be seen there"
    done = elsewhere(home, "cancel", run, "--gone", "--reason", "removed")
    assert (done.code, done.text) == (0, f"{run} cancelled\n")
    (said,) = [each for each in home.events(run, "run.cancel_requested") if each["payload"].get("gone")]
    assert said["payload"]["reason"] == "removed"


def test_with_its_first_process_a_container_is_gone(home: Home) -> None:
    """The usual way to execute in a container: what the kernel does then needs nobody's word."""
    home.tool("work", home.gate())
    home.model({"calls": [{"name": "work"}]}, {"text": "done"})
    session = home.new()
    argv = [*CONTAINER, *home.argv("send", session, "go")]
    with subprocess.Popen(argv, env=home.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        home.at_gate()
        first.kill()
    until(lambda: home.view(f"{session}/run-1")["executor"] == "lost", "its lock being free")
    assert elsewhere(home, "cancel", session, "--wait").code == 0


def test_the_first_process_of_a_container_that_only_looked_after_a_lost_run_may_be_there(
    home: Home, left_behind: tuple[str, subprocess.Popen[bytes]]
) -> None:
    """A patrol that could not go on with a run lives, and so does what the executor left beside it."""
    run, _ = left_behind
    log = home.run_dir(run) / "operations.jsonl"
    *_, last = log.read_text().splitlines()
    (acquired,) = home.events(run, "run.lease_acquired")
    acquired["payload"]["owner"]["pid"] = 1
    taken = acquired | {"seq": json.loads(last)["seq"] + 1, "generation": 2}
    log.write_text(log.read_text() + json.dumps(taken, separators=(",", ":")) + "\n")
    assert elsewhere(home, "cancel", run, "--wait").code == NOT_OVER
    assert home.run("cancel", run, "--wait").code == 0
    assert home.marked() == []


# covers A60 A61
def test_a_denial_is_worth_nothing_as_long_as_the_tool_may_live(
    home: Home, contained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """What the tool was about to send may still be sent, so that it is not sent again."""
    denial = ["/bin/sh", "-c", 'echo \'{"status": "failed"}\'']
    home.tool("export", home.gate(), effect="write", approve="auto", probe=denial, retries=3)
    home.model({"calls": [{"name": "export"}]}, {"text": "done"})
    session = home.new()
    run = f"{session}/run-1"
    contained("send", session, "go", "--detach")
    home.at_gate()
    kill_executor(home, run)
    tool = tool_of(home)
    for _ in range(2):
        assert [doc["outcome"] for doc in elsewhere(home, "recover", "--json").docs] == ["left"]
        (unknown,) = home.view(run)["unresolvedOperations"]
        assert unknown["status"] == "unknown"
    assert not is_gone(tool)
    # Where it can be seen it is ended first, and then the probe is right.
    home.open_gate()
    assert [doc["outcome"] for doc in home.run("recover", "--json").docs] == ["continued"]
    assert is_gone(tool)
    home.wait_for_status(run, "completed")


def test_who_goes_on_elsewhere_does_not_end_what_it_does_not_see(
    home: Home, left_behind: tuple[str, subprocess.Popen[bytes]], contained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    run, _ = left_behind
    tool = tool_of(home)
    contained("recover", "--watch")
    home.at_gate(2)
    assert home.view(run)["executor"] == "alive"
    # The executor in the second container ends what it has begun, and leaves the rest to those who see it.
    told = elsewhere(home, "cancel", run, "--wait")
    assert told.code == NOT_OVER, told.said
    assert tool_of(home) == tool
    assert [each["generation"] for each in home.view(run)["whereabouts"]] == [1]
    assert home.run("cancel", run, "--wait").code == 0
    assert is_gone(tool)


@pytest.mark.parametrize("leaves", [False, True])
def test_one_that_waits_for_the_user_says_whether_it_leaves_something(
    leaves: bool, home: Home, contained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    behind = f"setsid /bin/sh -c '{home.gate()}' >/dev/null 2>&1 &" if leaves else "true"
    home.tool("begin", behind)
    home.model({"calls": [{"name": "begin"}], "ask": "go on?"}, {"text": "done"})
    session = home.new()
    contained("send", session, "go", "--detach")
    run = f"{session}/run-1"
    home.wait_for_status(run, "waiting_input")
    until(lambda: home.view(run)["executor"] == "none", "its leaving")
    if leaves:
        home.at_gate()
    assert elsewhere(home, "cancel", run, "--wait").code == (NOT_OVER if leaves else 0)
    assert home.run("cancel", run, "--wait").code == 0
    assert home.marked() == []


def test_one_that_waits_leaves_nothing_if_what_it_left_has_ended(home: Home) -> None:
    """Nobody may have taken notice of that yet; and most runs have nothing in their record of where they were."""
    state = f"cut -d ' ' -f 3 /proc/$(cat '{home.path}/pid')/stat"
    left = f"(setsid /bin/sh -c 'echo $$ >\"{home.path}/pid\"' >/dev/null 2>&1 &)"
    wait = f"while [ ! -s '{home.path}/pid' ] || {state} 2>/dev/null | grep -q '[RSD]'; do sleep 0.02; done"
    home.tool("begin", f"{left}; {wait}")
    home.model({"calls": [{"name": "begin"}]}, {"ask": "go on?"}, {"text": "done"})
    run = home.detach(home.new(), "go")
    home.wait_for_status(run, "waiting_input")
    (released,) = home.wait_for_event(run, "run.lease_released")
    assert sorted(released["payload"]) == ["executingMs", "reason"]


# covers A51 A52
def test_what_keeps_a_child_is_said_by_the_child(home: Home) -> None:
    begin = " ".join([*CONTAINER, "/bin/sh", "-c"])
    inner = f"{' '.join(home.argv('send', 'kid', 'sub', '--detach'))}; exec sleep 600"
    home.tool("begin", f"setsid {begin} '{inner}' >/dev/null 2>&1 & {home.gate('begun')}")
    home.tool("work", home.gate())
    home.model({"ifContains": "sub", "calls": [{"name": "work"}]}, {"calls": [{"name": "begin"}]}, {"text": "done"})
    home.run("new", "--id", "kid")
    run = home.detach(home.new(), "go")
    home.at_gate()
    home.at_gate(name="begun")
    for each in ("kid/run-1", run):
        kill_executor(home, each)
    told = elsewhere(home, "cancel", run, "--gone", "--wait")
    assert (told.code, home.view(run)["survivors"]) == (NOT_OVER, ["kid/run-1"])
    assert "agentrun cancel kid/run-1\n" in told.said
    assert "agentrun cancel kid/run-1 --gone" in elsewhere(home, "cancel", "kid/run-1").said
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status("kid/run-1") == "cancelled"
    assert home.marked() == []


# covers A51 A52
def test_a_sandbox_that_lists_the_processes_of_the_machine_does_not_look_into_them(home: Home) -> None:
    home.tool("work", home.gate(), retries=3)
    home.model({"calls": [{"name": "work"}]}, {"text": "done"})
    run = home.detach(home.new(), "go")
    home.at_gate()
    assert "userNamespace" not in home.events(run, "run.lease_acquired")[0]["payload"]["owner"], "as most have none"
    kill_executor(home, run)
    first = tool_of(home)
    assert elsewhere(home, "recover", namespaces=SANDBOX).code == 0
    home.at_gate(2)
    told = elsewhere(home, "cancel", run, "--wait", namespaces=SANDBOX)
    assert told.code == NOT_OVER, told.said
    assert tool_of(home) == first, "the other one could be seen there"
    assert home.run("cancel", run, "--wait").code == 0
    assert is_gone(first)


# covers A51
def test_a_fenced_executor_does_not_vouch_for_what_an_earlier_one_left_where_it_is(home: Home) -> None:
    home.settings(top='lease = "1s"')
    home.tool("begin", f"setsid /bin/sh -c '{home.gate()}' >/dev/null 2>&1 &")
    home.tool("work", home.gate("inner"), retries=3)
    home.model({"calls": [{"name": "begin"}], "ask": "go on?"}, {"calls": [{"name": "work"}]}, {"text": "done"})
    session = home.new()
    run = f"{session}/run-1"
    wait = f'while [ ! -e "{home.path}/say" ]; do sleep 0.02; done'
    script = f'"$0" -m agentrun send "$1" go --detach; {wait}; "$0" -m agentrun send "$1" yes --detach; exec sleep 600'
    argv = [*CONTAINER, "/bin/sh", "-c", script, sys.executable, session]
    with ended_after(subprocess.Popen(argv, env=home.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)):
        home.at_gate()
        until(lambda: home.view(run)["status"] == "waiting_input" and home.view(run)["executor"] == "none", "it waits")
        (home.path / "say").touch()
        home.at_gate(name="inner")
        second = executor_of(home, run)
        home.suspend(run, second)
        until(lambda: home.view(run)["executor"] == "frozen", "its lease has run out")
        assert elsewhere(home, "cancel", run, "--wait").code == NOT_OVER
        os.kill(second, signal.SIGCONT)
        until(lambda: is_gone(second), "it leaves")
        assert elsewhere(home, "cancel", run, "--wait").code == NOT_OVER
        assert home.marked() != []


# covers A43 A51
def test_where_proc_shows_no_processes_nothing_is_executed_and_nothing_is_called_ended(home: Home) -> None:
    home.tool("work", home.gate())
    home.model({"calls": [{"name": "work"}]}, {"text": "done"})
    session = home.new()
    blind = NAMESPACES  # its /proc has the numbers of our processes
    refused = elsewhere(home, "send", session, "go", namespaces=blind)
    assert (refused.code, home.messages(session)) == (CONFIG, [])
    assert "/proc" in refused.said
    run = home.detach(session, "go")
    home.at_gate()
    tool = tool_of(home)
    kill_executor(home, run)
    told = elsewhere(home, "cancel", run, "--wait", namespaces=blind)
    assert told.code == NOT_OVER, told.said
    assert "/proc" in told.said
    assert [doc["outcome"] for doc in elsewhere(home, "recover", "--json", namespaces=blind).docs] == ["left"]
    assert not is_gone(tool)
    assert home.run("cancel", run, "--wait").code == 0
    assert is_gone(tool)


def test_where_proc_shows_no_processes_the_next_run_is_not_started(home: Home) -> None:
    session = home.new()
    home.tool("work", home.gate())
    home.model({"calls": [{"name": "work"}]}, {"text": "done"})
    home.detach(session, "one")
    home.at_gate()
    for text in ("two", "three"):
        assert home.run("send", session, text, "--if-busy", "queue", "--detach").code == 0
    first = executor_of(home, f"{session}/run-1")
    home.config.rename(home.path / "away")  # nobody can execute the second
    home.open_gate()
    until(lambda: is_gone(first), "the end of the first")
    until(lambda: home.view(f"{session}/run-2")["executor"] == "none", "whoever it started having left")
    (home.path / "away").rename(home.config)
    assert home.status(f"{session}/run-2") == "queued"
    argv = [*NAMESPACES, "/bin/sh", "-c", SEVERAL, "sh", *home.argv("cancel", f"{session}/run-3")]
    with ended_after(subprocess.Popen(argv, env=home.env, stdout=subprocess.PIPE)) as container:
        assert container.stdout is not None
        assert container.stdout.readline() == f"{session}/run-3 cancelled\n".encode()
        # Whoever is started is there before that command ends, and waits for the lock.
        (shell,) = children(container.pid)
        until(lambda: Path(f"/proc/{shell}/comm").read_bytes() == b"sleep\n", "the command's end")
        assert (children(shell), home.view(f"{session}/run-2")["executor"]) == ([], "none")
    assert home.run("recover").code == 0
    home.wait_for_status(f"{session}/run-2", "completed")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# covers A43 A51
def test_a_tool_that_has_put_something_over_the_tree_is_found(home: Home) -> None:
    if not _works(["unshare", "--user", "--map-root-user", "--mount"]):
        pytest.skip("no file system of one's own here")
    inner = f'mount -t tmpfs none "{home.root}" && echo >>"{home.path}/mounted"; exec sleep 600'
    begin = f"unshare --user --map-root-user --mount setsid --fork /bin/sh -c '{inner}' >/dev/null 2>&1"
    home.tool("work", f"{begin}; {home.gate()}")
    home.model({"calls": [{"name": "work"}]}, {"text": "done"})
    run = home.detach(home.new(), "go")
    home.at_gate()
    until((home.path / "mounted").exists, "its own file system")
    kill_executor(home, run)
    assert home.run("cancel", run, "--wait").code == 0
    assert home.marked() == []
