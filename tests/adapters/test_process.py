"""Real tools, real signals, and afterwards the whole machine is searched for what they left."""

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.process import (
    CannotStart,
    Outcome,
    Survivor,
    become_subreaper,
    end_marked,
    end_marked_now,
    run_process,
)
from agentrun.adapters.process.marks import mark_of
from agentrun.adapters.process.orphans import own_children, settle
from agentrun.adapters.process.output import LINE_BYTES, MEMORY_BYTES, STDERR_TAIL, Lines, Spool
from agentrun.adapters.process.procfs import Proc, all_procs, open_pidfd, read_proc, send_signal, session_of

MB = 1024 * 1024
# Seconds: generous, a busy machine is no failure.
PATIENCE = 40
Mark = dict[str, str]


@pytest.fixture(autouse=True)
def subreaper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests run in an executor's place, and leave the process as it was."""
    become_subreaper()
    monkeypatch.setattr("agentrun.adapters.process.orphans.STATUS_SECONDS", 0)
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.fixture
def mark() -> Iterator[Mark]:
    """Marks the processes of one test. Whatever it does, none of them is left."""
    made = {"AGENTRUN_TEST_MARK": uuid.uuid4().hex}
    gc.collect()  # handles of other tests would go meanwhile
    before = set(os.listdir("/proc/self/fd"))
    yield made
    while given_out:
        given_out.pop().stdout.close()
    left = marked(made)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == []
    assert own_children == set()
    wait_until(no_zombies)
    if set(os.listdir("/proc/self/fd")) != before:
        gc.collect()  # a handle in a circle is closed some time
    assert set(os.listdir("/proc/self/fd")) == before


# Running.


def test_stdin_reaches_the_tool_and_its_answer_comes_back(mark: Mark) -> None:
    outcome = call(["cat"], mark, stdin=b'{"sql": "select 1"}')
    assert (outcome.exit_code, outcome.signal) == (0, None)
    assert outcome.stdout.read() == b'{"sql": "select 1"}'
    assert not outcome.stdout_cut
    assert not outcome.output_open
    assert not outcome.timed_out
    assert outcome.survivors == ()


@pytest.mark.parametrize("code", [0, 1, 75, 255])
def test_exit_codes(mark: Mark, code: int) -> None:
    assert shell(f"exit {code}", mark).exit_code == code


def test_a_signal_is_not_an_exit_code(mark: Mark) -> None:
    outcome = shell("kill -KILL $$", mark)
    assert (outcome.exit_code, outcome.signal) == (None, signal.SIGKILL)


def test_a_status_that_the_kernel_threw_away_is_not_success(mark: Mark) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        outcome = shell("exit 3", mark)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (outcome.exit_code, outcome.signal) == (None, None)


def test_every_byte_passes_through_both_ways(mark: Mark) -> None:
    every = bytes(range(256)) * 300 + "\u2028\x85\0é".encode()
    outcome = shell("tee /dev/stderr", mark, stdin=every)
    assert outcome.stdout.read() == every
    assert outcome.stderr == every[-STDERR_TAIL:]
    assert outcome.stderr_total == len(every)


def test_the_tool_gets_its_directory_environment_and_a_session_of_its_own(mark: Mark, tmp_path: Path) -> None:
    outcome = python(
        "import os; print(os.getcwd(), sorted(os.environ), os.getsid(0) == os.getpid())", mark, cwd=tmp_path
    )
    assert outcome.stdout.read().decode().startswith(f"{tmp_path} ['AGENTRUN_TEST_MARK', ")
    assert call(["pwd"], mark, cwd=tmp_path).stdout.read().decode().strip() == str(tmp_path)


def test_the_tool_holds_four_descriptors_and_no_other(mark: Mark) -> None:
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        outcome = call(["ls", "/proc/self/fd"], mark)
    finally:
        os.close(kept)
    # One more is what ls reads the directory with.
    assert outcome.stdout.read().split() == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("held", [[], [3], [3, 4], [3, 4, 5, 6, 7, 8]], ids=lambda held: f"{len(held)} in use")
def test_lines_come_whatever_number_our_own_descriptors_have(held: list[int], mark: Mark) -> None:
    """In a process of its own: there the low numbers are free."""
    program = f"""
        import anyio, os
        from agentrun.adapters.process import run_process
        for number in {held}:
            os.dup2(2, number)
        async def main():
            got = []
            async def keep(line): got.append(line)
            await run_process(["sh", "-c", "echo x >&3"], cwd="/", env={mark!r}, marker={mark!r},
                timeout=None, grace=1, max_output=1, on_line=keep)
            print(got)
            try:
                await run_process(["nothing-of-this-name"], cwd="/", env={mark!r}, marker={mark!r},
                    timeout=None, grace=1, max_output=1)
            except Exception as error:
                print(error)
        anyio.run(main)
    """
    outcome = python(program, mark, cwd=Path(__file__).parents[2])
    assert outcome.stdout.read().decode().splitlines() == [
        "[b'x']",
        "cannot start 'nothing-of-this-name': No such file or directory: nothing-of-this-name",
    ], outcome.stderr


def test_where_its_number_was_kept_for_it_a_tool_is_started_without_a_copy_of_this_process(mark: Mark) -> None:
    """In a process of its own, as `agentrun` begins: nothing has descriptor 3."""
    program = f"""
        import anyio, os
        os.close(3)
        from agentrun.cli.output import reserve_line_descriptor
        reserve_line_descriptor()
        from agentrun.adapters.process import run_process
        from agentrun.adapters.process.starting import _as_line_fd
        async def main():
            got = []
            async def keep(line): got.append(line)
            await run_process(["sh", "-c", "ls /proc/self/fd >&3"], cwd="/", env={mark!r}, marker={mark!r},
                timeout=None, grace=1, max_output=1, on_line=keep)
            print(*got, os.readlink("/proc/self/fd/3"), os.get_inheritable(3))
        with _as_line_fd(1) as in_between:
            print(in_between, os.path.sameopenfile(1, 3))
        anyio.run(main)
    """
    outcome = python(program, mark, cwd=Path(__file__).parents[2])
    assert outcome.stdout.read().decode().splitlines() == [
        "None True",
        "b'0' b'1' b'2' b'3' b'4' /dev/null False",  # `ls` reads the directory with one more
    ], outcome.stderr


@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (["no-such-tool"], "/", "No such file or directory: no-such-tool"),
        (["./no-such-tool"], "/", "No such file or directory: ./no-such-tool"),
        (["/etc/passwd"], "/", "Permission denied: /etc/passwd"),
        (["true"], "/no/such/dir", "No such file or directory: /no/such/dir"),
        (["true", "a\0b"], "/", "embedded null byte"),
        (["true", "x" * 200_000], "/", "Argument list too long: true"),
        ([], "/", "list index out of range"),
    ],
)
def test_what_cannot_start_says_so(argv: list[str], cwd: str, reason: str, mark: Mark) -> None:
    started: list[int] = []
    with pytest.raises(CannotStart) as caught:
        call(argv, mark, cwd=cwd, on_started=started.append)
    assert caught.value.reason == reason
    assert started == []


def test_a_scope_that_is_cancelled_already_starts_nothing(mark: Mark) -> None:
    started: list[int] = []

    async def main() -> bool:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await run(["true"], mark, on_started=started.append)
        return scope.cancelled_caught

    assert anyio.run(main)
    assert started == []


@pytest.mark.parametrize("script", ["exec 0<&-; exit 4", "sleep 0.05; exit 4"])
def test_a_tool_may_leave_its_input_unread(script: str, mark: Mark) -> None:
    assert shell(script, mark, stdin=b"x" * 10 * MB).exit_code == 4


# Lines on descriptor 3.


def test_lines_arrive_while_the_tool_runs(mark: Mark, tmp_path: Path) -> None:
    """The tool waits at a FIFO for the answer to each line: a line passed on late would hang it."""
    for line in ("one", "two", "three"):
        os.mkfifo(tmp_path / line)
    got: list[bytes] = []

    async def answer(line: bytes) -> None:
        got.append(line)
        if line != b"last":
            await anyio.Path(tmp_path / line.decode()).write_bytes(b"go\n")

    script = r"""
        echo one >&3; read x < one
        printf 'two\n\nth' >&3; read x < two
        echo ree >&3; read x < three
        printf last >&3
    """
    assert shell(script, mark, cwd=tmp_path, on_line=answer).exit_code == 0
    assert got == [b"one", b"two", b"three", b"last"]


def test_a_line_is_passed_on_whole_even_when_time_is_up(mark: Mark) -> None:
    steps: list[str] = []

    async def slow(line: bytes) -> None:
        steps.append("begun")
        await anyio.sleep(0.1)
        steps.append("done")

    outcome = shell("echo x >&3; exec sleep 60", mark, timeout=0.05, on_line=slow, on_started=once_sleeping)
    assert outcome.timed_out
    assert steps == ["begun", "done"]


@pytest.mark.parametrize("script", ["echo x >&3; exec sleep 60", "echo x >&3"], ids=["running", "ended"])
def test_an_error_in_on_line_ends_the_tree_and_comes_out(script: str, mark: Mark) -> None:
    outcomes: list[Outcome] = []

    async def fail(line: bytes) -> None:
        raise LookupError(line)

    with pytest.raises(LookupError):
        shell(script, mark, on_line=fail, on_interrupted=outcomes.append)
    given_out.extend(outcomes)
    assert len(outcomes) == 1


def test_a_line_that_comes_while_the_tool_is_ended_is_taken_or_its_loss_is_told(mark: Mark) -> None:
    outcomes: list[Outcome] = []

    async def main() -> None:
        with anyio.CancelScope() as scope:

            async def take(line: bytes) -> None:
                scope.cancel()
                if line == b"late":
                    raise LookupError(line)

            script = "trap 'echo late >&3; exit 8' TERM; echo ready >&3; while :; do sleep 0.02; done"
            await run(["sh", "-c", script], mark, on_line=take, on_interrupted=outcomes.append)

    with pytest.raises(LookupError):
        anyio.run(main)
    given_out.extend(outcomes)
    assert [outcome.exit_code for outcome in outcomes] == [8]


def test_lines_are_bounded() -> None:
    lines = Lines()
    for chunk in (b"a\nb", b"c\n" + b"x" * LINE_BYTES, b"y" * 10, b"\nd\n\xe2\x80\xa8\r\n", b"e"):
        lines.write(chunk)
    lines.end()
    assert list(lines.complete) == [b"a", b"bc", b"d", b"\xe2\x80\xa8\r", b"e"]


# Output.


@pytest.mark.slow
def test_output_without_end_takes_no_memory_and_is_cut(mark: Mark) -> None:
    shell("head -c 3000000 /dev/zero", mark, max_output=2 * MB).stdout.close()  # buffers are grown now
    before = resident_bytes()
    outcome = shell("head -c 200000000 /dev/zero; head -c 5000000 /dev/zero >&2", mark, max_output=50 * MB)
    assert resident_bytes() - before < 8 * MB
    assert outcome.exit_code == 0
    assert (outcome.stdout_total, outcome.stdout_kept) == (200_000_000, 50 * MB)
    assert outcome.stdout_cut
    assert outcome.stdout.seek(0, os.SEEK_END) == 50 * MB
    assert (outcome.stderr_total, len(outcome.stderr)) == (5_000_000, STDERR_TAIL)


@pytest.mark.parametrize("size", [0, 1, MEMORY_BYTES - 1, MEMORY_BYTES, MEMORY_BYTES + 1, 3 * MEMORY_BYTES])
@pytest.mark.parametrize("limit", [0, 1000, MEMORY_BYTES + 500, 10 * MEMORY_BYTES])
def test_the_spool_keeps_the_first_bytes_and_counts_the_rest(size: int, limit: int) -> None:
    content = os.urandom(size)
    spool = Spool(limit)
    for offset in range(0, size, 65_521):
        spool.write(content[offset : offset + 65_521])
    with spool.opened() as file:
        assert file.read() == content[:limit]
    assert (spool.kept, spool.total) == (min(size, limit), size)


def test_a_full_disk_cuts_the_output_and_nothing_else(mark: Mark) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # The pipe hands on chunks that do not end where the limit is: the last write is a torn one.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MB + 77, before[1]))
    try:
        outcome = shell("head -c 5000000 /dev/zero", mark)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert outcome.exit_code == 0
    assert outcome.stdout_cut
    assert outcome.stdout_total == 5_000_000
    assert outcome.stdout.read() == bytes(outcome.stdout_kept) == bytes(2 * MB + 77)


# Others hold the pipes.


@pytest.mark.parametrize(
    "daemon",
    [
        "setsid sleep 60 &",
        "setsid sleep 60 >/dev/null 3>&- &",
        "setsid sleep 60 >/dev/null 2>&1 &",
        "setsid sh -c 'trap \"\" PIPE; while :; do echo x; echo y >&2; echo z >&3; done' 2>/dev/null &",
        "setsid yes 2>/dev/null 3>&- &",
    ],
    ids=["all", "stderr", "lines", "writes to all", "writes as fast as it can"],
)
def test_the_call_returns_when_the_tool_ends_not_when_its_pipes_close(daemon: str, mark: Mark) -> None:
    started = time.monotonic()
    outcome = shell(f"echo done; {daemon} exit 3", mark, max_output=5)
    assert time.monotonic() - started < 30  # they hold the pipes open for a minute
    assert outcome.exit_code == 3
    assert outcome.stdout.read() == b"done\n"
    assert outcome.output_open
    assert not outcome.timed_out
    if "sleep" in daemon:
        wait_until(lambda: len(marked(mark)) == 1)  # what a tool leaves when it ends by itself goes on
    assert end_now(mark) == []


def test_after_a_tool_that_left_nothing_no_other_process_of_the_machine_is_looked_at(mark: Mark) -> None:
    """In a process of its own: this one may have children of which it knows nothing."""
    program = f"""
        import anyio
        from agentrun.adapters.process import become_subreaper, orphans, run_process
        looks = []
        every = orphans.all_procs
        orphans.all_procs = lambda: looks.append(1) or every()
        async def run(script, **options):
            await run_process(["sh", "-c", script], cwd="/", env={mark!r}, marker={mark!r}, timeout=None, grace=1,
                max_output=1, **options)
        async def main():
            await run("exit 3")
            print(len(looks))
            begun = anyio.Event()
            async with anyio.create_task_group() as tasks:
                async def beside():
                    await run("cat", on_started=lambda pid: begun.set(), stdin=b"x" * 10)
                tasks.start_soon(beside)
                await begun.wait()
                await run("exit 0")
            print(len(looks))
            await run("setsid sleep 60 >/dev/null 2>&1 3>&- & exit 0")
            print(len(looks) > 0)
        become_subreaper()
        anyio.run(main)
    """
    outcome = python(program, mark, cwd=Path(__file__).parents[2])
    assert outcome.stdout.read().split() == [b"0", b"0", b"True"], outcome.stderr
    assert end_now(mark) == []


def test_a_helper_that_ends_just_after_the_tool_is_heard(mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine the helper may come later than 30 ms after the tool.
    monkeypatch.setattr("agentrun.adapters.process.run.LINGER_SECONDS", 20)
    outcome = shell("(sleep 0.03; echo late) & echo early", mark)
    assert outcome.stdout.read() == b"early\nlate\n"
    assert not outcome.output_open


def test_all_that_was_written_before_the_end_is_there(mark: Mark) -> None:
    outcome = shell("head -c 65536 /dev/zero; setsid sleep 60 & exit 0", mark)
    assert outcome.stdout_total == 65536
    assert end_now(mark) == []


# Ending the tree.


@pytest.mark.slow
def test_a_time_out_ends_the_tool_and_keeps_what_it_said(mark: Mark) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo hello; while :; do sleep 0.02; done"
    outcome = shell(script, mark, timeout=0.05, on_started=once_with_child)
    assert outcome.timed_out
    assert (outcome.exit_code, outcome.survivors) == (7, ())
    assert outcome.stdout.read() == b"hello\nbye\n"


@pytest.mark.slow
def test_a_tool_can_say_much_while_it_is_asked_to_end(mark: Mark) -> None:
    script = "trap 'head -c 5000000 /dev/zero; exit 7' TERM; while :; do sleep 0.01; done"
    outcome = shell(script, mark, timeout=0.05, on_started=once_with_child)
    assert (outcome.exit_code, outcome.stdout_total) == (7, 5_000_000)


def test_cancelling_says_how_the_tool_ended(mark: Mark) -> None:
    outcome = cancelled(["sh", "-c", "echo hi; echo ready >&3; exec sleep 60"], mark)
    assert (outcome.exit_code, outcome.signal) == (None, signal.SIGTERM)
    assert outcome.stdout.read() == b"hi\n"
    assert not outcome.timed_out


def test_the_tool_itself_is_asked_to_end_before_the_machine_is_searched(
    mark: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many processes there are: the search waits here until the tool and its child have heard of the stop."""
    # covers A46 B28
    heard: list[int] = []

    def search() -> dict[int, Proc]:
        wait_until(lambda: not heard or not any(is_in_state("S", pid) for pid in heard))
        return all_procs()

    script = "sleep 60 & echo $! >&3; wait"

    def note(pid: int) -> bool:
        heard[:] = [pid, *(each.pid for each in session_of(pid) if each.pid != pid)]
        return len(heard) == 2

    monkeypatch.setattr("agentrun.adapters.process.tree.all_procs", search)
    outcome = cancelled(["sh", "-c", script], mark, until=note, grace=60)
    assert outcome.signal == signal.SIGTERM


def test_what_a_tool_starts_to_clean_up_is_not_asked_to_end(mark: Mark, tmp_path: Path) -> None:
    program = """
        def end(number, frame):
            os.spawnlp(os.P_WAIT, "setsid", "setsid", "sh", "-c", "sleep 0.1; echo cleaned")
            os._exit(9)
        signal.signal(signal.SIGTERM, end)
        ready()
        time.sleep(60)
    """
    outcome = cancelled(tool(program), mark, grace=60)
    assert outcome.exit_code == 9
    assert outcome.stdout.read() == b"cleaned\n"


def test_a_grace_period_ends_when_somebody_forces_it(mark: Mark) -> None:
    forced: list[bool] = []
    outcome = cancelled(
        tool("signal.signal(signal.SIGTERM, signal.SIG_IGN); ready(); time.sleep(60)"),
        mark,
        grace=600,
        is_forced=lambda: bool(forced) or (forced.append(True) is None and False),
    )
    assert outcome.signal == signal.SIGKILL
    assert forced


def test_a_stopped_tool_is_woken_to_end_itself(mark: Mark) -> None:
    """It stops itself once more after it was asked to end."""
    program = """
        def end(number, frame):
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(9)
        signal.signal(signal.SIGTERM, end)
        ready()
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)
    """
    outcome = cancelled(tool(program), mark, until=partial(is_in_state, "T"))
    assert outcome.exit_code == 9


STUBBORN = {
    "ignores SIGTERM": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ready(); time.sleep(60)
    """,
    "stopped and ignores SIGTERM": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ready()
        while True: os.kill(os.getpid(), signal.SIGSTOP)
    """,
    "child called setsid": """
        if not os.fork():
            os.setsid(); ready(); time.sleep(60)
        os.wait()
    """,
    "forked twice, both in between gone": """
        if not os.fork():
            os.setsid()
            if not os.fork():
                ready(); time.sleep(60)
            os._exit(0)
        time.sleep(60)
    """,
    "child cleared its environment in its own session": """
        if not os.fork():
            os.setsid()
            stubborn = "trap '' TERM; echo ready >&3; sleep 60; :"
            os.execve("/bin/sh", ["sh", "-c", stubborn], {"PATH": os.defpath})
        os.wait()
    """,
    "children in a tree, each with a session, all ignore SIGTERM": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for depth in range(4):
            os.fork(); os.fork() or os.setsid()
        ready(); time.sleep(60)
    """,
    "first thread gone, another runs": """
        import ctypes, threading
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=lambda: (ready(), time.sleep(60))).start()
        ctypes.CDLL(None).pthread_exit(None)
    """,
    "name that looks like the end of a name": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("/proc/self/comm", "w").write("a) Z 1 (b")
        ready(); time.sleep(60)
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("program", STUBBORN.values(), ids=STUBBORN)
def test_cancelling_ends(program: str, mark: Mark) -> None:
    outcome = cancelled(tool(program), mark, grace=0.1)
    assert outcome.survivors == ()
    assert marked(mark) == []


@pytest.mark.slow
def test_ending_one_tool_leaves_its_neighbour_alone(mark: Mark, tmp_path: Path) -> None:
    ended: dict[str, Outcome] = {}

    async def one(name: str, script: str, **options: Any) -> None:
        marker = {**mark, "AGENTRUN_TEST_OPERATION": name}
        ended[name] = await run(["sh", "-c", script], marker, cwd=tmp_path, **options)
        (tmp_path / name).touch()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            deaf = {"timeout": 0.1, "grace": 0.1, "on_started": once_with_child}
            tasks.start_soon(partial(one, "first", "trap '' TERM; sleep 60", **deaf))
            wait = "(setsid sleep 0.1 & wait); while ! [ -e first ]; do sleep 0.01; done; exit 6"
            tasks.start_soon(partial(one, "second", wait))

    anyio.run(main)
    first, second = ended["first"], ended["second"]
    assert (first.timed_out, first.signal) == (True, signal.SIGKILL)
    assert (second.timed_out, second.exit_code) == (False, 6)


BOMBS = {
    "each lives on": """
        while budget(): os.fork()
        time.sleep(60)
    """,
    "each lives on, ignores SIGTERM, has its own session": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while budget(): os.fork() or os.setsid()
        time.sleep(60)
    """,
    "each starts the next and is gone": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork() and time.sleep(60)
        while budget():
            if os.fork(): os._exit(0)
    """,
    "each starts the next in a session of its own and is gone": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork() and time.sleep(60)
        while budget():
            if os.fork(): os._exit(0)
            os.setsid()
    """,
}
BOUND = """
    # However the test goes, the machine is given back: so many forks, and so many seconds.
    tokens, last = os.pipe(), time.monotonic() + 20
    os.set_blocking(tokens[0], False)
    os.write(tokens[1], b"-" * 50 + b"r" + b"-" * FORKS)
    def budget():
        try:
            token = os.read(tokens[0], 1)
        except BlockingIOError:
            return False
        token == b"r" and ready()
        return time.monotonic() < last
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", BOMBS.values(), ids=BOMBS)
def test_cancelling_ends_what_forks_as_fast_as_it_can(program: str, mark: Mark) -> None:
    # Those that go on have to be caught; those that live on are there all at once.
    forks = 60_000 if "_exit" in program else 1_000
    outcome = cancelled(tool(BOUND.replace("FORKS", str(forks)), program), mark, grace=0.3)
    assert not outcome.output_open, "one that no look at /proc has met still holds the pipes"
    assert outcome.survivors == ()
    assert marked(mark) == []


@pytest.mark.slow
def test_what_is_spared_lives_on_with_all_below_it(mark: Mark) -> None:
    spared: list[int] = []

    async def spare_the_child(line: bytes) -> None:
        spared.append(int(line))

    def once_all_are_there(pid: int) -> None:
        once_sleeping(pid)
        wait_until(lambda: len(marked(mark)) == 3)

    script = "sh -c 'sleep 61; :' & echo $! >&3; exec sleep 60"
    seen = {"on_line": spare_the_child, "on_started": once_all_are_there}
    outcome = shell(script, mark, timeout=1, spare=lambda: spared, **seen)
    assert outcome.timed_out
    assert (outcome.signal, outcome.output_open) == (signal.SIGTERM, True)
    assert len(marked(mark)) == 2
    assert end_now(mark, spare=lambda: spared) == []
    assert len(marked(mark)) == 2
    assert end_now(mark) == []


# The sweep by marker.


@pytest.mark.slow
def test_a_marker_finds_its_processes_wherever_they_are(mark: Mark) -> None:
    other = {"AGENTRUN_TEST_MARK": mark["AGENTRUN_TEST_MARK"] + "0"}
    shell("setsid sleep 60 >&- 2>&- 3>&- &", other)
    shell("(trap '' TERM; setsid sleep 60 >&- 2>&- 3>&- &); sleep 60 >&- 2>&- 3>&- &", mark)
    hidden = f"60.{os.getpid()}"
    shell(f"setsid sh -c 'env -i setsid sleep {hidden}; :' >&- 2>&- 3>&- &", mark)
    wait_until(lambda: (len(marked(mark)), len(marked(other)), len(running(hidden))) == (3, 1, 1))
    assert anyio.run(partial(end_marked, mark, grace=0.1)) == []
    assert (len(marked(other)), running(hidden)) == (1, [])
    assert end_marked_now(other, grace=1) == []


def test_an_empty_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="empty marker"):
        end_marked_now({}, grace=0)


def test_the_caller_and_those_above_it_are_left_alone(mark: Mark) -> None:
    """A command that cancels a run may have been started by a tool of that run."""
    program = f"""
        import subprocess
        from agentrun.adapters.process import end_marked_now
        other = subprocess.Popen(["sleep", "60"])
        print(end_marked_now({mark!r}, grace=1), other.wait(), flush=True)
    """
    script = f'{sys.executable} -c "$0"; echo alive'
    outcome = call(["sh", "-c", script, textwrap.dedent(program)], mark, cwd=Path(__file__).parents[2])
    assert outcome.stdout.read() == b"[] -15\nalive\n", outcome.stderr


@pytest.mark.slow
def test_below_a_subreaper_nothing_hides(mark: Mark) -> None:
    """No marker, no parent, no session in common: only adoption tells whose it is."""
    program = f"""
        import anyio
        from agentrun.adapters.process import become_subreaper, end_descendants, run_process
        async def main():
            become_subreaper()
            hide = "env -i setsid sh -c 'sleep 61.{os.getpid()} & sleep 61.{os.getpid()}' >&- 2>&- 3>&- &"
            await run_process(["sh", "-c", hide], cwd="/", env=dict(os.environ), marker={mark!r},
                timeout=None, grace=1, max_output=1)
            print(await end_descendants(grace=1))
        anyio.run(main)
    """
    assert call(tool(program), mark, cwd=Path(__file__).parents[2]).stdout.read() == b"[]\n"
    assert running(f"61.{os.getpid()}") == []


def test_a_stranger_with_the_same_pid_is_not_touched(mark: Mark) -> None:
    async def main() -> Outcome:
        started: list[int] = []

        def strike(pid: int) -> None:
            started.append(pid)
            proc = read_proc(pid)
            assert proc
            send_signal(proc._replace(start=proc.start - 1), signal.SIGKILL)
            send_signal(proc._replace(start=proc.start + 1), signal.SIGKILL)

        return await run(["sh", "-c", "exit 5"], mark, on_started=strike)

    assert anyio.run(main).exit_code == 5


def test_without_pidfds_all_of_it_works_too(mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert open_pidfd(os.getpid()) is None
    assert shell("sleep 0.05; exit 3", mark).exit_code == 3
    assert shell("exec sleep 60", mark, timeout=0.1).signal == signal.SIGTERM
    proc = read_proc(os.getpid())
    assert proc
    send_signal(proc._replace(start=proc.start + 1), signal.SIGKILL)


def test_nobody_loses_the_status_of_a_child(mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other libraries start servers, also with a session of their own, and wait for them."""
    monkeypatch.setattr("agentrun.adapters.process.orphans.STATUS_SECONDS", 60)
    env = {**mark, "PATH": os.environ["PATH"]}
    for own_session in (False, True):
        ended = subprocess.Popen(["sh", "-c", "exit 7"], env=env, start_new_session=own_session)
        asked = subprocess.Popen(["sleep", "60"], env=env, start_new_session=own_session)
        wait_until(partial(is_in_state, "Z", ended.pid))
        shell("setsid sleep 60 >&- 2>&- 3>&- &", {**mark, "AGENTRUN_TEST_OPERATION": "op-1"})
        assert end_now(mark) == []
        assert (ended.wait(), asked.wait()) == (7, -signal.SIGTERM)


def test_a_program_to_which_no_orphans_come_loses_no_status_however_late_it_asks(mark: Mark) -> None:
    """It drives a run with an agent of its own, and a busy machine takes its time to end what belongs to that."""
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    env = {**mark, "PATH": os.environ["PATH"]}
    ended = subprocess.Popen(["sh", "-c", "exit 7"], env=env, start_new_session=True)
    asked = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    wait_until(partial(is_in_state, "Z", ended.pid))
    assert end_now(mark) == []
    assert (ended.wait(), asked.wait()) == (7, -signal.SIGTERM)


def test_what_cannot_be_ended_is_named(mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another user, as far as signals go: the kernel refuses them."""

    def refuse(*_: object) -> None:
        raise PermissionError

    shell("setsid sleep 60 >&- 2>&- 3>&- &", mark)
    found: list[int] = []

    def is_there() -> bool:
        # Looked at once: a process that is just being replaced (execve) has no environment for an instant.
        found[:] = [pid for pid in marked(mark) if is_sleeping(pid)]
        return len(found) == 1

    wait_until(is_there)
    (pid,) = found
    with monkeypatch.context() as patched:
        patched.setattr(signal, "pidfd_send_signal", refuse)
        assert end_now(mark, grace=0, kill=0.1) == [Survivor(pid, "sleep 60")]
    assert end_now(mark) == []


# Tools, and looking around.

PRELUDE = """
import os, signal, sys, time
def ready():
    os.write(3, b"ready\\n")
"""


given_out: list[Outcome] = []  # their files are closed when the test is over


def tool(*parts: str) -> list[str]:
    return [sys.executable, "-c", PRELUDE + "".join(map(textwrap.dedent, parts))]


async def run(argv: list[str], mark: Mark, **options: Any) -> Outcome:
    env = {**mark, "PATH": os.environ["PATH"]}
    given = {"cwd": "/", "timeout": None, "grace": PATIENCE, "max_output": 100 * MB, **options}
    outcome = await run_process(argv, env=env, marker=mark, **{"on_interrupted": given_out.append, **given})
    given_out.append(outcome)
    return outcome


def call(argv: list[str], mark: Mark, **options: Any) -> Outcome:
    return anyio.run(partial(run, argv, mark, **options))


def shell(script: str, mark: Mark, **options: Any) -> Outcome:
    return call(["sh", "-c", script], mark, **options)


def python(program: str, mark: Mark, **options: Any) -> Outcome:
    return call(tool(program), mark, **options)


def cancelled(
    argv: list[str],
    mark: Mark,
    *,
    until: Callable[[int], bool] = lambda pid: True,
    grace: float = PATIENCE,
    **options: Any,
) -> Outcome:
    """Cancels the tool when it has said that it is ready."""
    outcomes: list[Outcome] = []
    pids: list[int] = []

    async def main() -> None:
        ready = anyio.Event()

        async def note(line: bytes) -> None:
            ready.set()

        async with anyio.create_task_group() as tasks:
            seen = {"on_line": note, "on_started": pids.append, "on_interrupted": outcomes.append}
            tasks.start_soon(partial(run, argv, mark, grace=grace, **seen, **options))
            with anyio.fail_after(PATIENCE):
                await ready.wait()
                while not until(pids[0]):  # noqa: ASYNC110  the kernel sends no event for it
                    await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    given_out.extend(outcomes)
    (outcome,) = outcomes
    return outcome


def end_now(mark: Mark, **options: Any) -> list[Survivor]:
    return end_marked_now(mark, **{"grace": PATIENCE, **options})


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def file_of(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def marked(mark: Mark) -> list[int]:
    wanted = {f"{key}={value}".encode() for key, value in mark.items()}
    return [pid for pid in all_pids() if wanted <= set(file_of(pid, "environ").split(b"\0"))]


def running(argument: str) -> list[int]:
    return [pid for pid in all_pids() if argument.encode() in file_of(pid, "cmdline").split(b"\0")]


def is_sleeping(pid: int) -> bool:
    """Whether it has become `sleep 60` by now."""
    return file_of(pid, "cmdline") == b"sleep\x0060\x00"


def once_sleeping(pid: int) -> None:
    """For `on_started`: no time-out begins before the tool is `sleep 60`."""
    wait_until(partial(is_sleeping, pid))


def once_with_child(pid: int) -> None:
    """For `on_started`: no time-out begins before the tool has begun something in its turn."""
    wait_until(
        lambda: any(each.ppid == pid and file_of(each.pid, "cmdline").startswith(b"sleep") for each in all_of_them())
    )


def all_of_them() -> list[Proc]:
    return [proc for pid in all_pids() if (proc := read_proc(pid))]


def is_in_state(state: str, pid: int) -> bool:
    proc = read_proc(pid)
    return proc is not None and proc.state == state


def no_zombies() -> bool:
    settle(mark_of({}))
    return all(proc.alive for proc in all_of_them() if proc.ppid == os.getpid())


def wait_until(condition: Callable[[], bool]) -> None:
    """For what the kernel sends no event of."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
