"""An executor that is alive and does not respond: watched, ended, fenced out; and never taken for a stranger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentrun.commands.vigil import Vigil
from agentrun.store.disk import Directory
from agentrun.store.locks import lock_holder
from agentrun.store.redo import writing
from agentrun.store.tree import Tree
from tests.cli.conftest import is_gone, state, until

Home = Any

pytestmark = pytest.mark.slow
NOT_OVER, CONFLICT = 6, 7

# Claims the run of the arguments as an executor does, and freezes while it holds the session's lock.
FROZEN_IN_THE_LOCK = """\
import os, signal, sys
from agentrun.store.locks import take_liveness
from agentrun.store.disk import Directory
from agentrun.store.locks import lock_holder
from agentrun.store.redo import writing
from agentrun.store.tree import Tree
root, account, session_id, run_id = sys.argv[1:]
session = Tree(root, account).session(session_id)
with writing(session):
    pass  # makes the run that the prompt stands for
run_dir = session.run(run_id)
liveness = take_liveness(run_dir.directory)
with writing(session) as writer:
    run_dir.claim(writer, lease_seconds=1.0, timeout=None)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
# A command that waits for nobody's lock as long as the others do.
IMPATIENT = """\
import sys, agentrun.store.locks as locks
from agentrun.cli.main import main
locks.LOCK_PATIENCE = 0.05
sys.exit(main())
"""
CONTAINER = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.fixture
def container() -> list[str]:
    """What to put before a command to have its process numbers in a space of their own."""
    try:
        subprocess.run([*CONTAINER, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces of one's own here")
    return CONTAINER


def begun(home: Home, lease: str) -> str:
    """A detached run whose tool waits at the gate."""
    home.settings(top=f'lease = "{lease}"')
    home.tool("look", f"echo looked >>'{home.path}/effects'; {home.gate()}; echo rows", retries=3)
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    run = str(home.detach(home.new(), "go"))
    home.at_gate()
    return run


@pytest.fixture
def working(home: Home) -> str:
    """Such a run whose lease is short."""
    return begun(home, lease="1s")


def freeze(home: Home, run: str) -> int:
    """Stops the executor of a run, and waits until its lease has run out."""
    pid = int(home.executor(run))
    home.suspend(run, pid)
    until(lambda: home.view(run)["executor"] == "frozen", "its lease has run out")
    return pid


def marked(home: Home, run: str) -> list[int]:
    """The processes that the run's tools are."""
    return list(home.marked(run.partition("/")[0]))


def change_lease(home: Home, run: str, **owner: Any) -> None:
    path = home.run_dir(run) / "lease.json"
    lease = json.loads(path.read_bytes())
    lease["owner"] |= owner
    path.write_text(json.dumps(lease))


def goes_on(home: Home, run: str) -> None:
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert home.run("show", run, "--report").text == "rows\n"


# covers A59 A63 B33 B34
def test_a_rival_ends_a_frozen_executor_and_its_tools_and_the_run_goes_on(home: Home, working: str) -> None:
    pid = freeze(home, working)
    tools = marked(home, working)
    done = home.run("recover", "--json")
    assert (done.code, [doc["outcome"] for doc in done.docs]) == (0, ["continued"])
    assert is_gone(pid)
    assert tools
    assert all(map(is_gone, tools))
    goes_on(home, working)
    assert [event["generation"] for event in home.events(working, "run.lease_acquired")] == [1, 2, 3]


def test_one_that_wakes_up_while_it_is_watched_goes_on_in_its_generation(home: Home) -> None:
    # It has to renew its lease while it is watched, on a busy machine too.
    working = begun(home, lease="3s")
    pid = freeze(home, working)
    session, _, run_id = working.partition("/")
    run_dir = Tree(str(home.root), home.session_dir(working).parent.parent.name).session(session).run(run_id)
    assert Vigil().seconds_left(run_dir) > 0, "a lease that has run out says nothing to who sees it for the first time"
    rival = home.start("recover", "--json")
    # It watches for one more lease; a renewal in that time ends the watch.
    os.kill(pid, signal.SIGCONT)
    done = rival.end()
    assert (done.code, done.docs) == (0, [])
    goes_on(home, working)
    assert len(home.events(working, "run.lease_acquired")) == 1


# covers A58 A63
def test_who_waits_for_a_suspended_one_is_told_so_once_and_what_to_type(home: Home, working: str) -> None:
    files = [home.path / "said-by-wait", home.path / "said-by-show"]
    for file in files:
        file.touch()
    with files[0].open("ab") as first, files[1].open("ab") as second:
        waiting = [home.start("wait", working, stderr=first), home.start("show", "-f", working, stderr=second)]
    waiting.append(home.start("wait", working, "--json"))
    pid = freeze(home, working)
    view = home.view(working)
    assert view["late"] == {"cause": "suspended", "owner": view["late"]["owner"], "pid": pid, "keeper": None}
    assert "executor suspended" in home.run("ls").text
    seen = home.terminal("show", "-f", working)
    seen.wait_for(f"kill -CONT {pid}")
    for file in files:
        # On a busy machine its lease may have run out before: then that was told first.
        told = (
            f"its executor (pid {pid}) is suspended",
            f"let it go on with: kill -CONT {pid}\n",
            f"agentrun resume {working}\n",
        )
        until(lambda file=file, told=told: all(words in file.read_text() for words in told), "it is told")
    os.kill(pid, signal.SIGCONT)
    home.open_gate()
    home.wait_for_status(working, "completed")
    assert [each.end()[::2] for each in waiting] == [(0, b"")] * 3
    assert [file.read_text().count("is suspended") for file in files] == [1, 1]
    assert seen.end() == 0


@contextmanager
def frozen_in_the_lock(home: Home, *before: str) -> Iterator[tuple[str, int]]:
    """A run whose executor stands still with the session's lock, and its number here; `before` begins its container."""
    home.settings(top='lease = "1s"')
    session = home.new()
    run = str(home.detach(session, "go"))
    pid = home.executor(run)
    until(lambda: is_gone(pid), "its executor has left")
    prompt = json.loads((home.session_dir(session) / "messages.jsonl").read_text().splitlines()[0])
    prompt |= {"seq": 3, "runId": "run-2"}
    with (home.session_dir(session) / "messages.jsonl").open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    account = home.session_dir(session).parent.parent.name
    argv = [*before, sys.executable, "-c", FROZEN_IN_THE_LOCK, str(home.root), account, session, "run-2"]
    with subprocess.Popen(argv, env=home.env) as process:
        try:
            run = f"{session}/run-2"
            until((home.run_dir(run) / "lease.json").exists, "its executor has it")
            with closing(Directory.root(str(home.session_dir(session)))) as directory:
                pid = until(lambda: lock_holder(directory), "it has the lock")
            until(lambda: state(pid) == "T", "it stands still")
            until(lambda: home.view(run)["executor"] == "frozen", "its lease has run out")
            yield run, pid
        finally:
            process.kill()


def test_one_that_is_frozen_in_the_sessions_lock_is_named_and_then_ended(home: Home) -> None:
    with frozen_in_the_lock(home) as (run, pid):
        refused = home.run("send", run.partition("/")[0], "more", "--json")
        assert refused.code == CONFLICT
        assert f"(pid {pid})" in refused.error["message"]
        assert "agentrun recover" in refused.error["hint"]
        done = home.run("recover", "--json")
        assert (done.code, [doc["outcome"] for doc in done.docs]) == (0, ["continued"])
    home.wait_for_status(run, "completed")


# covers A59 A63 B34
def test_one_that_is_frozen_in_the_lock_in_a_container_is_ended_from_outside_of_it(
    home: Home, container: list[str]
) -> None:
    """Its number in the container means nothing here, but the kernel names it: by the lock that it holds."""
    with frozen_in_the_lock(home, *container, "sh", "-c", '"$@"; exit $?', "sh") as (run, pid):
        assert json.loads((home.run_dir(run) / "lease.json").read_bytes())["owner"]["pid"] != pid
        done = home.run("recover", "--json")
        assert (done.code, [doc["outcome"] for doc in done.docs]) == (0, ["continued"])
        assert is_gone(pid)
    home.wait_for_status(run, "completed")


# covers A59 A61 A63 B34
def test_one_that_is_frozen_in_the_lock_elsewhere_is_waited_for_and_then_named(
    home: Home, container: list[str]
) -> None:
    """Nobody can fence it out without that lock, nor end it from here: the run stays, and it is said who has it."""
    with frozen_in_the_lock(home) as (run, pid):
        change_lease(home, run, bootId="another")
        before = home.events(run)
        # With process numbers of its own first; then where the kernel names the one that has the lock.
        asked = ((container, ["recover"], NOT_OVER), ([], ["resume", run], CONFLICT), ([], ["cancel", run], CONFLICT))
        for inside, words, code in asked:
            argv = [*inside, sys.executable, "-c", IMPATIENT, *words, "--json"]
            done = subprocess.run(argv, env=home.env, capture_output=True, check=False, text=True)
            assert done.returncode == code, done
            said = done.stdout + done.stderr
            assert "does not respond, has the session's lock, and cannot be ended from here" in said
            assert "end it where it runs" in said
        assert (state(pid), home.events(run)) == ("T", before)
        os.kill(pid, signal.SIGKILL)
        until(lambda: home.view(run)["executor"] == "lost", "it is gone")
        done = home.run("recover", "--json")
        assert (done.code, [doc["outcome"] for doc in done.docs]) == (0, ["continued"])
    home.wait_for_status(run, "completed")


def test_a_cancel_that_waits_ends_a_frozen_executor(home: Home, working: str) -> None:
    pid = freeze(home, working)
    done = home.run("cancel", working, "--wait")
    assert (done.code, done.said.count("it is ended if that stays so")) == (0, 1)
    assert is_gone(pid)
    assert home.view(working)["status"] == "cancelled"
    assert marked(home, working) == []
    assert [event["type"] for event in home.events(working)][-1] == "run.finished"


# covers B35 B36 B37
def test_one_that_was_replaced_writes_nothing_into_the_run_and_says_what_it_knew(home: Home, working: str) -> None:
    pid = freeze(home, working)
    tree = Tree(str(home.root), home.session_dir(working).parent.parent.name)
    session = tree.session(working.partition("/")[0])
    with writing(session) as writer:  # a rival that cannot end it: from another machine
        session.run("run-1").take_over(writer, lease_seconds=600.0)
    before = {path: path.read_bytes() for path in home.run_dir(working).rglob("*") if path.is_file()}
    os.kill(pid, signal.SIGCONT)
    until(lambda: is_gone(pid), "it leaves")
    after = {path: path.read_bytes() for path in home.run_dir(working).rglob("*") if path.is_file()}
    assert before == after
    notes = (home.session_dir(working) / "stale" / "run-1.generation-1.jsonl").read_text().splitlines()
    assert [json.loads(note)["type"] for note in notes] == ["tool.finished", "run.lease_released"]
    assert json.loads(notes[0])["payload"]["operationId"] == "op-2"
    assert marked(home, working) == []


# covers A60
def test_what_a_replaced_executor_left_settles_a_write(home: Home) -> None:
    home.settings(top='lease = "1s"')
    script = f"echo x >>'{home.path}/effects'; {home.gate()}; echo exported"
    home.tool("export", script, effect="write", approve="auto")
    home.model({"calls": [{"name": "export"}]}, {"text": "{{op:export}}"})
    run = str(home.detach(home.new(), "go"))
    home.at_gate()
    pid = freeze(home, run)
    tree = Tree(str(home.root), home.session_dir(run).parent.parent.name)
    session = tree.session(run.partition("/")[0])
    home.open_gate()
    until(lambda: not [tool for tool in marked(home, run) if state(tool) != "Z"], "its tool ends")
    with writing(session) as writer:
        session.run("run-1").take_over(writer, lease_seconds=0.1)
    os.kill(pid, signal.SIGCONT)
    until(lambda: is_gone(pid), "it leaves")
    done = home.run("recover", "--json")
    assert (done.code, [doc["outcome"] for doc in done.docs]) == (0, ["continued"])
    home.wait_for_status(run, "completed")
    (late,) = home.events(run, "operation.reconciled")
    assert (late["payload"]["evidence"], late["payload"]["result"]) == ("stale note", "exported\n")
    assert home.run("show", run, "--report").text == "exported\n"
    assert (home.path / "effects").read_text() == "x\n"


@pytest.mark.parametrize("changed", ["startTime", "bootId", "host"])
def test_a_process_that_only_has_the_number_is_left_alone(changed: str, home: Home, working: str) -> None:
    """The number was given to another process, the machine was started anew, or it is another machine."""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        pid = freeze(home, working)
        other: Any = {"startTime": 1, "bootId": "another", "host": "elsewhere"}[changed]
        start = int(Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19])
        change_lease(home, working, **({"pid": stranger.pid, "startTime": start} | {changed: other}))
        # It cannot be ended, so it is fenced out.
        done = home.run("recover", "--json")
        assert (done.code, [doc["outcome"] for doc in done.docs]) == (0, ["continued"])
        assert f"pid {stranger.pid}" in done.docs[0]["reason"]
        assert stranger.poll() is None
        assert state(pid) == "T"
        stranger.kill()
    goes_on(home, working)
    os.kill(pid, signal.SIGCONT)
    until(lambda: is_gone(pid), "it leaves")


@pytest.mark.parametrize("changed", ["startTime", "bootId"])
def test_a_dead_executor_whose_number_is_used_again_is_lost(changed: str, home: Home, working: str) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        os.kill(home.executor(working), signal.SIGKILL)
        until(lambda: home.view(working)["executor"] == "lost", "it is gone")
        change_lease(home, working, pid=stranger.pid, **{changed: 1 if changed == "startTime" else "another"})
        assert home.view(working)["executor"] == "lost"
        assert home.run("recover").code == 0
        assert stranger.poll() is None
        stranger.kill()
    goes_on(home, working)
