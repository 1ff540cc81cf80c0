"""An executor that does not respond and cannot be ended from here: the generation keeps it out, not its lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentrun.cli.options import Options
from agentrun.commands.recovery import Ready, recover
from agentrun.errors import FencedOut
from agentrun.store.disk import Directory
from agentrun.store.liveness import still_fenced
from agentrun.store.locks import lock_holder
from agentrun.store.redo import writing
from tests.cli.conftest import PATIENCE, is_gone, state, until

Home = Any

pytestmark = pytest.mark.slow
NOT_OVER, CONFLICT, FENCED = 6, 7, 12
CONTAINER = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--mount-proc", "--kill-child"]


class Rival(NamedTuple):
    """Somebody who looks after lost runs in a container, whose end is that of all executors in it.

    `of` is the number here of the executor whose run it has taken.
    """

    of: int
    container: subprocess.Popen[bytes]


@pytest.fixture
def working(home: Home) -> str:
    """A session whose tool waits for the gate; leases are short."""
    home.settings(top='lease = "1s"')
    home.tool("look", f"echo looked >>'{home.path}/effects'; {home.gate()}; echo rows", retries=3)
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    return str(home.new())


@pytest.fixture
def in_container(home: Home, working: str) -> Iterator[subprocess.Popen[bytes]]:
    """An executor in a container: its number means nothing outside."""
    try:
        subprocess.run([*CONTAINER, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces of one's own here")
    argv = [*CONTAINER, *home.argv("send", working, "go")]
    with subprocess.Popen(argv, env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        home.at_gate()
        yield process
        process.kill()


def freeze(home: Home, run: str, pid: int) -> None:
    """Stops `pid`, the executor of `run`, and waits until its lease is over."""
    home.suspend(run, pid)
    until(lambda: home.view(run)["executor"] == "frozen", "its lease has run out")


def begun(home: Home, session: str) -> tuple[str, int]:
    """A detached run whose tool is at work, and its executor."""
    run = home.detach(session, "go")
    home.at_gate()
    return run, home.executor(run)


def with_longer_leases(home: Home) -> None:
    """From now on: who goes on with the run is not to be taken for frozen, however busy the machine is."""
    home.settings(top='lease = "10m"')


def elsewhere(home: Home, run: str) -> None:
    """Lets the lease name an executor of another machine."""
    path = home.run_dir(run) / "lease.json"
    lease = json.loads(path.read_bytes())
    lease["owner"] |= {"host": "elsewhere", "bootId": "another"}
    path.write_text(json.dumps(lease))


def holder_of(home: Home, run: str) -> int | None:
    directory = Directory.root(str(home.run_dir(run)))
    try:
        return lock_holder(directory)
    finally:
        directory.close()


def contents(home: Home, run: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.run_dir(run).rglob("*") if path.is_file()}


def recovered(home: Home, code: int = 0) -> list[str]:
    done = home.run("recover", "--json")
    assert done.code == code, done
    return [doc["outcome"] for doc in done.docs]


@pytest.fixture
def rival(home: Home, in_container: subprocess.Popen[bytes]) -> Iterator[Rival]:
    """The executor is frozen, and the rival in another container has taken its run and gone on with it."""
    run = next(iter(home.sessions.iterdir())).name + "/run-1"
    (pid,) = map(int, Path(f"/proc/{in_container.pid}/task/{in_container.pid}/children").read_text().split())
    freeze(home, run, pid)
    with_longer_leases(home)
    argv = [*CONTAINER, *home.argv("recover", "--watch")]
    with subprocess.Popen(argv, env=home.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as patrol:
        home.at_gate(2)
        yield Rival(pid, patrol)
        patrol.kill()


# covers A59 A63 B33 B34 B35 B36 B37
def test_one_in_another_container_is_fenced_out_and_leaves_when_it_wakes_up(
    home: Home, working: str, in_container: subprocess.Popen[bytes], rival: Rival
) -> None:
    run, pid = f"{working}/run-1", rival.of
    # The old one has the lock and does nothing; the lease shows that the new one is at work.
    assert (state(pid), holder_of(home, run)) == ("T", pid)
    view = home.view(run)
    assert (view["executor"], view["generation"], view["fenced"]["pid"]) == ("alive", 3, 1)
    assert recovered(home) == []

    os.kill(pid, signal.SIGCONT)
    assert in_container.wait() == FENCED
    # The new one gets the lock that the old one lets go.
    until(lambda: holder_of(home, run) not in (None, pid), "the lock")
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert home.run("show", run, "--report").text == "rows\n"
    assert (home.path / "effects").read_text() == "looked\n" * 2
    assert [event["generation"] for event in home.events(run, "run.lease_acquired")] == [1, 2, 3]


# covers A58 A63
def test_who_has_got_the_lock_and_dies_is_lost_at_once(
    home: Home, working: str, in_container: subprocess.Popen[bytes], rival: Rival
) -> None:
    run = f"{working}/run-1"
    os.kill(rival.of, signal.SIGCONT)
    assert in_container.wait() == FENCED
    lease = home.run_dir(run) / "lease.json"
    until(lambda: json.loads(lease.read_bytes()).get("locked"), "its lease saying so")
    rival.container.kill()
    # The lease has minutes to go.
    until(lambda: home.view(run)["executor"] == "lost", "its lock being free")


# covers A51
def test_such_a_run_ends_once_the_one_that_was_fenced_out_has_said_that_nothing_of_it_is_alive(
    home: Home, working: str, in_container: subprocess.Popen[bytes], rival: Rival
) -> None:
    def elsewhere(*words: str) -> int:
        argv = [*CONTAINER, *home.argv(*words)]
        return subprocess.run(argv, env=home.env, capture_output=True, timeout=PATIENCE, check=False).returncode

    run = f"{working}/run-1"
    assert elsewhere("cancel", run, "--wait") == NOT_OVER
    until(lambda: home.view(run)["executor"] == "lost", "nothing more to do where the rival is")
    # Whoever says that it is gone is told better: it has its lock.
    assert elsewhere("cancel", run, "--gone") == CONFLICT
    assert state(rival.of) == "T"
    os.kill(rival.of, signal.SIGCONT)
    assert in_container.wait() == FENCED
    assert elsewhere("cancel", run, "--wait") == 0


def test_one_in_a_container_that_can_be_seen_from_here_is_ended(
    home: Home, working: str, in_container: subprocess.Popen[bytes]
) -> None:
    """It is on the same machine, under another number."""
    run = f"{working}/run-1"
    (pid,) = map(int, Path(f"/proc/{in_container.pid}/task/{in_container.pid}/children").read_text().split())
    freeze(home, run, pid)
    with_longer_leases(home)
    assert recovered(home) == ["continued"]
    assert is_gone(pid)
    home.at_gate(2)
    assert home.view(run)["fenced"] is None
    home.open_gate()
    home.wait_for_status(run, "completed")


# covers A43 A51
def test_one_that_was_fenced_out_in_sight_is_ended_with_all_that_it_began(home: Home) -> None:
    """Who fenced it out did not see it. What it started may have dropped the run's mark, and is known by it alone."""
    home.settings(top='lease = "1s"')
    beats = f"while :; do echo >>'{home.path}/beats'; sleep 0.05; done"
    script = f'(env -i PATH="$PATH" setsid /bin/sh -c "{beats}" >/dev/null 2>&1 &); {home.gate()}'
    home.tool("look", script, retries=3)
    home.model({"calls": [{"name": "look"}]}, {"text": "done"})
    session = home.new()
    run = f"{session}/run-1"
    argv = [*CONTAINER, *home.argv("send", session, "go")]
    with subprocess.Popen(argv, env=home.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as container:
        try:
            home.at_gate()
            until((home.path / "beats").exists, "what it started")
            (pid,) = map(int, Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split())
            daemons = beating(home)
            freeze(home, run, pid)
            argv = [*CONTAINER, *home.argv("recover", "--watch")]
            with subprocess.Popen(argv, env=home.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as patrol:
                until(lambda: home.view(run)["generation"] == 3, "who goes on")
                patrol.kill()
            assert (len(daemons), state(pid), home.view(run)["fenced"]["pid"]) == (1, "T", 1)
            assert home.run("cancel", run, "--wait").code == 0
            assert is_gone(pid)
            assert [each for each in daemons if not is_gone(each)] == []
        finally:
            container.kill()


def beating(home: Home) -> list[int]:
    """What writes its beats, and bears no mark."""
    found = [each for each in map(int, filter(str.isdecimal, os.listdir("/proc"))) if each not in home.marked()]
    return [each for each in found if f">>'{home.path}/beats'".encode() in words_of(each)]


def words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# covers B33 B37
def test_a_run_ends_while_the_one_that_was_fenced_out_has_the_lock(home: Home, working: str) -> None:
    run, pid = begun(home, working)
    freeze(home, run, pid)
    elsewhere(home, run)
    with_longer_leases(home)
    crowd = [home.start("recover", "--json") for _ in range(4)]
    assert [doc["outcome"] for each in crowd for doc in each.end().docs] == ["continued"]
    home.at_gate(2)
    second = home.executor(run)
    home.open_gate()
    home.wait_for_status(run, "completed")
    until(lambda: is_gone(second), "all that it has to write being written")
    before = contents(home, run)
    # The session goes on: the next run has a directory of its own.
    assert home.run("send", working, "again").code == 0
    os.kill(pid, signal.SIGCONT)
    until(lambda: is_gone(pid), "it leaves")
    assert contents(home, run) == before


# covers A58 A63
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_who_took_over_without_the_lock_and_goes_is_replaced(number: int, home: Home, working: str) -> None:
    run, pid = begun(home, working)
    freeze(home, run, pid)
    elsewhere(home, run)
    if number == signal.SIGKILL:
        with_longer_leases(home)
    assert recovered(home) == ["continued"]
    home.at_gate(2)
    second = home.executor(run)
    # No lock tells that it is dead, and its lease has minutes to go: its number does. One that is frozen is watched.
    if number == signal.SIGKILL:
        os.kill(second, number)
        until(lambda: home.view(run)["executor"] == "lost", "it is lost")
    else:
        freeze(home, run, second)
    assert recovered(home) == ["continued"]
    assert is_gone(second)
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert [event["payload"]["attempt"] for event in home.events(run, "run.lease_acquired")] == [1, 1, 2, 2, 3]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("changed", ["bootId", "pidNamespace"])
def test_of_one_that_is_not_of_here_the_lease_alone_tells(changed: str, home: Home, working: str) -> None:
    """Its number means nothing here, so that nobody has it proves nothing."""
    run, pid = begun(home, working)
    freeze(home, run, pid)
    elsewhere(home, run)
    assert recovered(home) == ["continued"]
    home.at_gate(2)
    second = home.executor(run)
    freeze(home, run, second)
    path = home.run_dir(run) / "lease.json"
    lease = json.loads(path.read_bytes())
    lease["owner"] |= {"startTime": 1} | {changed: "another" if changed == "bootId" else 1}
    path.write_text(json.dumps(lease))
    assert home.view(run)["executor"] == "frozen"
    for each in (pid, second):
        os.kill(each, signal.SIGKILL)


def test_a_cancel_that_waits_winds_it_down_in_its_stead(home: Home, working: str) -> None:
    run, pid = begun(home, working)
    freeze(home, run, pid)
    elsewhere(home, run)
    assert home.run("cancel", run, "--wait").code == 0
    assert (home.view(run)["status"], state(pid)) == ("cancelled", "T")
    before = contents(home, run)
    os.kill(pid, signal.SIGCONT)
    until(lambda: is_gone(pid), "it leaves")
    assert contents(home, run) == before


def test_resume_goes_on_in_this_terminal(home: Home, working: str) -> None:
    run, pid = begun(home, working)
    freeze(home, run, pid)
    elsewhere(home, run)
    home.open_gate()
    done = home.run("resume", run)
    assert (done.code, done.text) == (0, "rows\n"), done.said
    os.kill(pid, signal.SIGKILL)


# covers A60 A61
def test_a_denial_of_its_write_counts_only_once_it_is_dead(home: Home) -> None:
    """What it was about to send may still be sent: a probe that says "not done" says nothing about later."""
    home.settings(top='lease = "1s"')
    denial = ["/bin/sh", "-c", 'echo \'{"status": "failed"}\'']
    home.tool("export", home.gate(), effect="write", approve="auto", probe=denial)
    home.model({"calls": [{"name": "export"}]}, {"text": "the report"})
    run, pid = begun(home, home.new())
    freeze(home, run, pid)
    elsewhere(home, run)
    for _ in range(2):
        assert recovered(home, NOT_OVER) == ["left"]
        (unknown,) = home.view(run)["unresolvedOperations"]
        assert unknown["status"] == "unknown"
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid), "it is dead")
    assert recovered(home) == ["continued"]
    home.wait_for_status(run, "completed")
    (settled,) = home.events(run, "operation.reconciled")[-1:]
    assert settled["payload"]["status"] == "failed"


def test_a_lease_that_is_passed_on_keeps_others_away_and_is_taken_once(home: Home, working: str) -> None:
    """No lock can be handed to the process that is to go on; without the lease a second one would be started."""
    run, pid = begun(home, working)
    freeze(home, run, pid)
    elsewhere(home, run)
    with_longer_leases(home)
    account = home.session_dir(run).parent.parent.name
    place = Options(root=str(home.root), account=account).place()
    session = place.tree.session(working)
    run_dir = session.run("run-1")
    ready = recover(place, session, run_dir, frozen=run_dir.lease())
    assert isinstance(ready, Ready)
    assert run_dir.view().executor == "alive"
    assert recovered(home) == []
    assert still_fenced(run_dir, run_dir.load(), ready.liveness)
    with writing(session) as writer:
        run_dir.claim(writer, lease_seconds=60, timeout=None, fenced=run_dir.load().fenced)
    with pytest.raises(FencedOut):
        still_fenced(run_dir, run_dir.load(), ready.liveness)
    os.close(ready.liveness)
    os.kill(pid, signal.SIGKILL)
