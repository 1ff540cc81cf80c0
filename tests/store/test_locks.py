"""The two locks: one holder at a time, shells join in, a death frees them, and nothing waits for itself.

Covers A75, B2, B3, B5, B10, B11, B44, cases C3, C4 and C5, promises 3 and 4.
"""

import fcntl
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import AgentrunError
from agentrun.store import locks
from agentrun.store.disk import Directory
from agentrun.store.locks import is_executor_alive, session_lock, take_liveness
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees

FREE, TAKEN = 0, 1
APPEND = """\
from agentrun.store.tree import Tree
from agentrun.store.redo import writing
from agentrun.testing import trees
session = Tree({root!r}, "ann").session("s1")
"""
HOLDER = """\
import sys
from agentrun.store.disk import Directory
from agentrun.store.locks import session_lock, take_liveness
directory = Directory.root(sys.argv[1])
if sys.argv[2] == "liveness":
    kept = take_liveness(directory)
    print("held", flush=True)
    sys.stdin.read()
else:
    with session_lock(directory):
        print("held", flush=True)
        sys.stdin.read()
"""


def try_lock(path: str | Path) -> int:
    """What `flock` of a shell finds: FREE or TAKEN."""
    return subprocess.run(["flock", "--nonblock", "--conflict-exit-code", "1", path, "true"], check=False).returncode


def holder(path: str, which: str = "session") -> subprocess.Popen[str]:
    """A process that holds the lock until its stdin is closed or it is killed."""
    argv = [sys.executable, "-c", HOLDER, path, which]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def let_go(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


def test_the_lock_is_the_kernel_s_on_the_directory_itself(tmp_path: Path) -> None:
    directory = Directory.root(str(tmp_path))
    assert try_lock(tmp_path) == FREE
    with session_lock(directory):
        assert try_lock(tmp_path) == TAKEN
        assert list(tmp_path.iterdir()) == []
    assert try_lock(tmp_path) == FREE


def test_a_shell_that_holds_the_lock_keeps_writers_waiting_until_it_is_done(session: SessionDir) -> None:
    path = session.directory.path
    shell = subprocess.Popen(
        ["flock", path, "sh", "-c", "echo held; read line; echo done >mark"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=path,
    )  # fmt: skip
    assert shell.stdout is not None
    assert shell.stdout.readline() == "held\n"
    seen = []

    def write() -> None:
        trees.accept(session)
        seen.append(Path(path, "mark").exists())

    writer = threading.Thread(target=write)
    writer.start()
    assert not seen
    shell.communicate("\n")
    writer.join(30)
    assert seen == [True]


def test_the_same_thread_a_second_time_is_an_error_at_once_however_the_directory_is_reached(
    tree: Tree, session: SessionDir, tmp_path: Path
) -> None:
    """Case C5."""
    link = tmp_path / "link"
    link.symlink_to(tree.root)
    through_link = Tree(str(link), "ann").session("s1")
    with writing(session):
        for again in (session, tree.session("s1"), through_link, session.another()):
            with pytest.raises(AgentrunError, match="holds the session's lock already"), writing(again):
                raise AssertionError("got in")
        assert try_lock(session.directory.path) == TAKEN
    with writing(through_link):
        pass


def test_a_thread_that_fails_inside_gives_the_lock_back(tmp_path: Path) -> None:
    directory = Directory.root(str(tmp_path))
    with pytest.raises(ZeroDivisionError), session_lock(directory):
        raise ZeroDivisionError
    assert try_lock(tmp_path) == FREE
    with session_lock(directory):
        pass


def test_threads_of_one_process_take_turns(tmp_path: Path) -> None:
    directories = [Directory.root(str(tmp_path)) for _ in range(4)]
    inside, most = 0, 0

    def work(directory: Directory) -> None:
        nonlocal inside, most
        for _ in range(200):
            with session_lock(directory):
                inside += 1
                most = max(most, inside)
                os.sched_yield()
                inside -= 1

    threads = [threading.Thread(target=work, args=[each]) for each in directories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


FORKER = """\
import os, sys
from agentrun.store.disk import Directory
from agentrun.store.locks import session_lock
directory = Directory.root(sys.argv[1])
lock = session_lock(directory)
lock.__enter__()
child = os.fork()
if child == 0:
    lock.__exit__(None, None, None)  # the library's own way out
    os._exit(0)
os.waitpid(child, 0)
print("child is gone", flush=True)
sys.stdin.readline()
lock.__exit__(None, None, None)
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_forked_child_that_leaves_does_not_free_its_parent_s_lock(tmp_path: Path) -> None:
    """Case C5."""
    argv = [sys.executable, "-c", FORKER, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == "child is gone\n"
        assert try_lock(tmp_path) == TAKEN
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "released\n"
        assert try_lock(tmp_path) == FREE


FAMILY = """\
import os, sys
from agentrun.store.disk import Directory
from agentrun.store.locks import session_lock
directory = Directory.root(sys.argv[1])
with session_lock(directory):
    pass
to_child, from_parent = os.pipe()
to_parent, from_child = os.pipe()
if os.fork() == 0:
    os.read(to_child, 1)
    with session_lock(directory):  # by the handle that it has of its parent
        print("child", flush=True)
        os.read(to_child, 1)
    os.write(from_child, b"x")
    os._exit(0)
os.write(from_parent, b"x")
sys.stdin.readline()
try:
    with session_lock(directory, on_wait=lambda: sys.exit("waited in vain")):
        print("parent, too soon", flush=True)
except SystemExit:
    print("kept out", flush=True)
os.write(from_parent, b"x")
os.read(to_parent, 1)
with session_lock(directory):
    print("parent", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_forked_child_is_an_owner_of_its_own(tmp_path: Path) -> None:
    """Case C5: its parent had the lock's descriptor open when it was forked."""
    code = "from agentrun.store import locks\nlocks.LOCK_PATIENCE = 0.05\n" + FAMILY
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == "child\n"
        assert try_lock(tmp_path) == TAKEN
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert [parent.stdout.readline() for _ in range(2)] == ["kept out\n", "parent\n"]
        assert try_lock(tmp_path) == TAKEN


HEIR = """\
import os, sys
from agentrun.store.disk import Directory
from agentrun.store.locks import session_lock
directory = Directory.root(sys.argv[1])
with session_lock(directory):
    pass
if os.fork() == 0:
    sys.stdin.read()  # goes on, and has nothing to do with the lock
    os._exit(0)
with session_lock(directory):
    print("parent", flush=True)
    os.waitpid(-1, 0)
"""


@pytest.mark.slow
def test_a_holder_that_is_killed_frees_the_lock_though_a_forked_child_of_it_goes_on(tmp_path: Path) -> None:
    """Case C5: the child was forked when its parent had the lock's descriptor open."""
    argv = [sys.executable, "-c", HEIR, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == "parent\n"
        assert try_lock(tmp_path) == TAKEN
        parent.kill()
        parent.wait(30)
        assert try_lock(tmp_path) == FREE
        parent.stdin.close()


def test_holds_one_after_the_other_cost_one_descriptor_which_goes_with_the_last_handle(tmp_path: Path) -> None:
    def open_ones() -> set[str]:
        return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}

    gc.collect()  # handles of other tests would go meanwhile
    before = open_ones()
    one, other = Directory.root(str(tmp_path)), Directory.root(str(tmp_path))
    for _ in range(3):
        for directory in (one, other):
            with session_lock(directory):
                assert try_lock(tmp_path) == TAKEN
    assert len(open_ones() - before) == 3
    one.close()
    with session_lock(other):
        assert try_lock(tmp_path) == TAKEN
    other.close()
    assert open_ones() == before
    with Directory.root(str(tmp_path)) as again, session_lock(again):
        assert try_lock(tmp_path) == TAKEN
    assert open_ones() == before


def test_whoever_gives_up_waiting_can_come_back_and_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_PATIENCE", 0.01)
    directory = Directory.root(str(tmp_path))
    with session_lock(directory):
        pass
    process = holder(str(tmp_path))
    with pytest.raises(ZeroDivisionError), session_lock(directory, lambda: 1 // 0):  # type: ignore[arg-type,return-value]
        raise AssertionError("got in")
    let_go(process)
    with session_lock(directory):
        assert try_lock(tmp_path) == TAKEN
    # The kernel may hand the lock to the one that gave up, who lets it go at once.
    assert subprocess.run(["flock", "--wait", "30", tmp_path, "true"], check=False).returncode == 0


WAITS = """\
import fcntl, os, sys
from agentrun.store import locks
from agentrun.store.disk import Directory
locks.LOCK_PATIENCE = 0.01
directory = Directory.root(sys.argv[1])
other = os.open(sys.argv[1], os.O_RDONLY)
def wait():
    fcntl.flock(other, fcntl.LOCK_EX)
    with locks.session_lock(directory, on_wait=lambda: fcntl.flock(other, fcntl.LOCK_UN)):
        return len(os.listdir("/proc/self/task"))
print(max(wait() for _ in range(20)), flush=True)
if os.fork() == 0:
    wait()
    os._exit(0)
print(os.wait()[1])
"""


@pytest.mark.slow
def test_one_thread_waits_time_and_again_and_a_forked_child_has_one_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITS, tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "2\n0\n"


@pytest.mark.parametrize("which", ["session", "liveness"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_holder_that_is_killed_frees_the_lock(tmp_path: Path, which: str, number: int) -> None:
    process = holder(str(tmp_path), which)
    assert try_lock(tmp_path) == TAKEN
    process.send_signal(number)
    let_go(process)
    assert try_lock(tmp_path) == FREE


@pytest.mark.slow
def test_the_executor_s_lock_is_seen_and_is_given_once(tmp_path: Path) -> None:
    directory = Directory.root(str(tmp_path))
    assert not is_executor_alive(directory)
    process = holder(str(tmp_path), "liveness")
    assert is_executor_alive(directory)
    assert take_liveness(directory) is None
    let_go(process)
    assert not is_executor_alive(directory)
    kept = take_liveness(directory)
    assert kept is not None
    assert is_executor_alive(directory)
    os.close(kept)
    assert not is_executor_alive(directory)


def test_looking_whether_an_executor_lives_keeps_none_from_starting(tmp_path: Path) -> None:
    directory = Directory.root(str(tmp_path))
    stop = threading.Event()

    def look() -> None:
        mine = Directory.root(str(tmp_path))
        while not stop.is_set():
            is_executor_alive(mine)

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for thread in lookers:
        thread.start()
    try:
        for _ in range(50):
            kept = take_liveness(directory)
            assert kept is not None
            assert is_executor_alive(directory)
            os.close(kept)
    finally:
        stop.set()
        for thread in lookers:
            thread.join()


@pytest.mark.slow
def test_sixteen_processes_that_append_at_once_lose_nothing_and_use_no_number_twice(
    crew: Callable[..., Any], session: SessionDir, tree: Tree
) -> None:
    """Promise 3: nor is one that was acknowledged before another was begun numbered behind it."""
    run_id = trees.accept(session).run_id
    add = f'trees.add(session, {run_id!r}, "steer", f"{{argument}}/{{n}}").seq'
    # One clock for all processes (clock_gettime(2)); what is asked for first is evaluated first.
    members = crew(
        16,
        f"return [[time.monotonic_ns(), {add}, time.monotonic_ns()] for n in range(10)]",
        "import time\n" + APPEND.format(root=tree.root),
    )
    timed = [result["ok"] for result in members.all()]
    acknowledged = [[seq for _, seq, _ in each] for each in timed]
    by_number = sorted((seq, begun, told) for each in timed for begun, seq, told in each)
    latest_beginning = 0
    for _, begun, told in by_number:
        assert told > latest_beginning, "one with a lower number was begun after this one was acknowledged"
        latest_beginning = max(latest_beginning, begun)
    assert sorted(seq for each in acknowledged for seq in each) == list(range(2, 162))
    for each in acknowledged:
        assert each == sorted(each)
    stored = list(session.messages_since(1))
    assert [message.seq for message in stored] == list(range(1, 162))
    for number, each in enumerate(acknowledged):
        assert [stored[seq - 1].text for seq in each] == [f"{number}/{n}" for n in range(10)]
    assert session.messages.damage == []


SWEEPER = """\
import os, sys
print(flush=True)
while True:
    for directory, names, files in os.walk(sys.argv[1]):
        for name in files:
            if "lock" in name:
                os.unlink(os.path.join(directory, name))
"""


@pytest.mark.parametrize(
    "count", [pytest.param(40, marks=pytest.mark.slow), pytest.param(150, marks=pytest.mark.exhaustive)]
)
def test_somebody_who_deletes_every_file_with_lock_in_its_name_changes_nothing(
    crew: Callable[..., Any], session: SessionDir, tree: Tree, count: int
) -> None:
    """Case C4."""
    run_id = trees.accept(session).run_id
    members = crew(
        8,
        f'return [trees.add(session, {run_id!r}, "steer", str(n)).seq for n in range({count})]',
        APPEND.format(root=tree.root),
    )
    argv = [sys.executable, "-c", SWEEPER, tree.root]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as sweeper:
        assert sweeper.stdout is not None
        sweeper.stdout.readline()
        results = members.all()
        assert sweeper.poll() is None
        sweeper.kill()
    last = 8 * count + 1
    assert sorted(seq for result in results for seq in result["ok"]) == list(range(2, last + 1))
    assert [message.seq for message in session.messages_since(1)] == list(range(1, last + 1))


@pytest.mark.slow
def test_writers_killed_in_mid_air_cost_no_acknowledged_message(session: SessionDir, tree: Tree) -> None:
    """Promise 1: eight writers are killed one after the other, each while it appends as fast as it can."""
    run_id = trees.accept(session).run_id
    code = APPEND.format(root=tree.root) + (
        f'while True: print(trees.add(session, {run_id!r}, "steer", "x" * 2000).seq, flush=True)'
    )
    acknowledged: list[int] = []
    writers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for writer in writers:
        assert writer.stdout is not None
        acknowledged += [int(writer.stdout.readline()) for _ in range(5)]
        writer.kill()
        rest = writer.communicate()[0]
        acknowledged += [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    last = trees.add(session, run_id, "steer", "after all").seq
    stored = [message.seq for message in session.messages_since(1)]
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(stored)
    assert stored == list(range(1, last + 1))


def test_who_looks_does_not_take_another_looker_for_an_executor(tmp_path: Path) -> None:
    directory = Directory.root(str(tmp_path))
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_SH)  # as a probe holds it, for an instant
        assert not is_executor_alive(directory)
    finally:
        os.close(other)
