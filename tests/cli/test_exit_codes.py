"""Each exit code that can occur, in a pipe and on a terminal, and the state on disk that says the same.

How a run ends, and with which code, is a table in test_endings; signals are in test_signals too.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.adapters.models import weights
from agentrun.errors import EXIT_CODES
from agentrun.store.redo import writing
from agentrun.store.tree import Tree
from tests.cli.conftest import until

Home = Any
WAYS = ("pipe", "terminal")

pytestmark = pytest.mark.slow


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def begin(home: Home, way: str) -> Callable[..., Any]:
    """Starts a command in that way; `.end()` of what it returns is the exit code."""

    class Begun:
        def __init__(self, *arguments: str, **kwargs: Any) -> None:
            self.started = (home.start if way == "pipe" else home.terminal)(*arguments, **kwargs)
            self.pid = self.started.pid

        def end(self) -> int:
            ended = self.started.end()
            return int(ended if isinstance(ended, int) else ended.code)

    return Begun


@pytest.fixture
def code(begin: Callable[..., Any]) -> Callable[..., int]:
    def run(*arguments: str, **kwargs: Any) -> int:
        return int(begin(*arguments, **kwargs).end())

    return run


Begin = Callable[..., Any]
Code = Callable[..., int]


# --- how a run ends


def test_3_for_a_run_that_was_cancelled_by_someone_else(home: Home, begin: Begin) -> None:
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "never"})
    session = home.new()
    sending = begin("send", session, "analyse")
    home.wait_for_event(session, "tool.started")
    watching = begin("show", "-f", session)
    assert home.run("cancel", session, "--wait").code == 0
    assert sending.end() == 3
    assert watching.end() == 3
    assert home.status(session) == "cancelled"


def test_5_for_whoever_looks_at_a_run_that_waits(home: Home, code: Code) -> None:
    home.model({"ask": "which?"})
    session = home.new()
    home.run("send", session, "analyse")
    assert code("show", "-f", session) == 5
    assert code("wait", session) == 5


def test_6_for_a_run_whose_executor_is_lost(home: Home, code: Code) -> None:
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "never"})
    session = home.new()
    run = home.detach(session, "analyse")
    home.at_gate()
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "its executor being lost")
    assert home.view(run)["status"] == "reconciling"
    assert code("show", "-f", run) == 6
    assert code("show", run) == 0
    assert code("send", session, "more") == 7
    assert code("cancel", run, "--wait") == 0
    assert home.status(run) == "cancelled"
    assert home.marked(session) == []


# --- cancel


def test_cancel_of_a_queued_run_is_over_at_once_and_again_is_no_error(home: Home, code: Code) -> None:
    home.model({"ask": "which?"})
    session = home.new()
    home.run("send", session, "analyse")
    assert code("cancel", session) == 0
    assert home.status(session) == "cancelled"
    assert code("cancel", session) == 0
    assert code("cancel", session, "--wait") == 0


def test_cancel_without_waiting_is_6_until_it_is_over(home: Home, code: Code) -> None:
    home.tool("stubborn", f"trap '' TERM; {home.gate()}", grace="600s")
    home.model({"calls": [{"name": "stubborn"}]}, {"text": "never"})
    session = home.new()
    run = home.detach(session, "analyse")
    home.at_gate()
    assert code("cancel", run) == 6
    assert home.status(run) == "cancelling"
    assert (home.run_dir(run) / "cancel").exists()
    assert code("cancel", run, "--wait", "--timeout", "100ms") == 124
    assert home.status(run) == "cancelling"
    assert code("send", session, "more") == 7
    home.open_gate()
    assert code("cancel", run, "--wait") == 0
    assert home.status(run) == "cancelled"


def test_cancel_of_a_run_that_ended_otherwise_is_7_and_leaves_no_sentinel(home: Home, code: Code) -> None:
    session = home.new()
    home.run("send", session, "analyse")
    assert code("cancel", session) == 7
    assert code("cancel", session, "--wait") == 7
    assert not (home.run_dir(session) / "cancel").exists()


def _timing_out(home: Home) -> str:
    """A run whose time is used up and whose tool does not hear of it: with more time on a slow machine."""
    home.tool("stubborn", f"trap '' TERM; {home.gate()}", grace="600s")
    home.model({"calls": [{"name": "stubborn"}]}, {"text": "never"})
    for seconds in (0.5, 3, 15):
        run = str(home.detach(home.new(), "analyse", "--timeout", f"{seconds:g}s"))
        # Its tool may have been stopped before it could do anything about that.
        if home.wait_for_status(run, "cancelling", "timed_out") == "cancelling" and _comes_to_the_gate(home, run):
            return run
    raise AssertionError("its tool never began in time")


def _comes_to_the_gate(home: Home, run: str) -> bool:
    reached = home.path / "gate.reached"
    until(lambda: reached.exists() or home.status(run) == "timed_out", "its tool, or its end")
    return bool(reached.exists())


def test_cancel_of_a_run_that_is_timing_out_waits_for_that_end_and_is_7(home: Home) -> None:
    # covers A53 B24: the first intent fixed the end, and whoever comes later is told
    run = _timing_out(home)
    waiting = home.start("cancel", run, "--wait")
    home.wait_for_event(run, "run.cancel_requested", count=2)
    home.open_gate()
    told = waiting.end()
    assert (told.code, told.out) == (7, b"")
    assert f"{run} has ended (timed_out" in told.said.replace("timed out", "timed_out")
    assert home.status(run) == "timed_out"


def test_cancel_of_a_session_without_a_run_is_8(home: Home, code: Code) -> None:
    session = home.new()
    assert code("cancel", session) == 8
    assert not list(home.session_dir(session).rglob("cancel"))


def test_cancel_with_a_time_limit_that_it_would_not_keep_is_wrong_usage(home: Home, code: Code) -> None:
    assert code("cancel", home.new(), "--timeout", "3s") == 2


# --- refusals


def test_2_for_wrong_usage(home: Home, code: Code) -> None:
    session = home.new()
    assert code() == 2
    assert code("nonsense") == 2
    assert code("send") == 2
    assert code("send", session) == 2
    assert code("send", session, "") == 2
    assert code("send", session, "two", "texts") == 2
    assert code("send", session, "x", "--mode", "shout") == 2
    assert code("send", session, "x", "--timeout", "soon") == 2
    assert code("send", session, "x", "--mode", "steer", "--if-busy", "reject") == 2
    assert code("send", session, "x", "--if-ended", "steer") == 2
    assert code("send", session, "--file", "/no/such/file") == 2
    assert code("show", session, "--messages", "--report") == 2
    assert code("ls", "--status", "sleeping") == 2
    assert home.messages(session) == []


def test_7_for_a_slot_that_is_taken(home: Home, code: Code) -> None:
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "done"})
    session = home.new()
    run = home.detach(session, "analyse")
    home.wait_for_event(run, "tool.started")
    assert code("send", session, "more", "--mode", "prompt") == 7
    assert code("send", session, "more", "--if-busy", "reject") == 7
    assert code("send", session, "more", "--mode", "answer") == 7
    assert run in home.run("send", session, "more", "--mode", "prompt").said
    assert len(home.messages(session)) == 1
    home.open_gate()
    home.wait_for_status(run, "completed")


def test_7_for_a_last_message_that_is_another(home: Home, code: Code) -> None:
    session = home.new()
    assert code("send", session, "analyse", "--expect-seq", "0") == 0
    assert code("send", session, "more", "--expect-seq", "1") == 7
    assert len(home.messages(session)) == 2
    assert code("send", session, "more", "--expect-seq", "2") == 0


def test_7_for_a_key_with_another_text(home: Home, code: Code) -> None:
    session = home.new()
    assert code("send", session, "analyse", "--key", "k") == 0
    assert code("send", session, "analyse", "--key", "k") == 0
    assert code("send", session, "another", "--key", "k") == 7
    assert [message["role"] for message in home.messages(session)] == ["user", "assistant"]


def test_7_for_a_kind_of_input_that_does_not_fit(home: Home, code: Code) -> None:
    session = home.new()
    for mode in ("steer", "follow-up", "answer"):
        assert code("send", session, "x", "--mode", mode) == 7
    home.run("send", session, "analyse")
    for mode in ("steer", "follow-up", "answer"):
        assert code("send", session, "x", "--mode", mode) == 7
    assert code("steer", session, "x") == 7
    assert code("steer", f"{session}/1", "x") == 7
    assert code("approve", session) == 7
    assert len(home.messages(session)) == 2


def test_7_for_a_name_that_is_taken(home: Home, code: Code) -> None:
    assert code("new", "--id", "mine") == 0
    assert code("new", "--id", "mine") == 7


def test_8_for_what_is_not_there_or_may_be_several(home: Home, code: Code) -> None:
    assert code("show") == 8
    assert code("show", "@last") == 8
    for name in ("live-one", "live-two"):
        home.new("--id", name)
    assert code("show", "nothing") == 8
    assert code("show", "live") == 8
    assert code("send", "live", "x") == 8
    assert code("show", "live-one/run-1") == 8
    assert code("show", "live-one/7") == 8
    assert code("show", "live-one", "--report") == 8
    assert code("send", "live-one", "x", "--ref", "run-7") == 8
    assert home.messages("live-one") == []


@pytest.mark.parametrize("name", ["..", ".", "../x", "a b", "a\nb", "x" * 65, "é", "\x1b[31m", ".hidden", "a:b", "-x"])
def test_9_for_an_id_that_must_not_become_a_path(home: Home, code: Code, name: str) -> None:
    session = home.new()
    before = sorted(home.path.rglob("*"))
    assert code("new", f"--id={name}") == 9
    assert code(f"--account={name}", "ls") == 9
    assert code("show", "--", f"{session}/{name}") == 9
    assert code("show", "--", name) == 9
    assert code("send", session, "x", f"--ref={name}") == 9
    assert sorted(home.path.rglob("*")) == before


def test_10_for_a_session_that_cannot_be_read(home: Home, code: Code) -> None:
    session = home.new("--id", "torn")
    other = home.new("--id", "whole")
    path = home.session_dir(session) / "session.json"
    path.write_bytes(path.read_bytes()[:30])
    assert code("show", session) == 10
    assert code("send", session, "x") == 10
    failed = home.run("show", session, "--json")
    assert failed.error["code"] == "damaged"
    assert failed.error["path"] == str(path)
    assert isinstance(failed.error["offset"], int)
    listed = home.run("ls")
    assert listed.code == 0
    assert other in listed.text
    assert str(path) in listed.said


def test_13_for_a_configuration_that_does_not_give_what_is_needed(home: Home, code: Code) -> None:
    session = home.new()
    assert code("send", session, "x", "--agent", "nobody") == 13
    assert code("send", session, "x", "--config", str(home.path / "gone.toml")) == 13
    home.config.write_text("")
    assert code("send", session, "x") == 13
    home.config.write_text("[agents.analyst]\nmodle = 'x'\n")
    assert code("send", session, "x") == 13
    assert "did you mean 'model'" in home.run("send", session, "x").said
    home.config.write_text("not toml")
    assert code("send", session, "x") == 13
    assert home.messages(session) == []
    home.config.unlink()
    assert code("send", session, "x") == 13
    if not weights.is_installed():  # else it is the agent of whoever has configured none
        assert home.run("send", session, "x", env={"AGENTRUN_CONFIG": ""}).code == 13
    assert code("show", session) == 0


def test_13_and_the_run_stays_where_its_configuration_is_gone(home: Home, code: Code) -> None:
    home.model({"ask": "which?"}, {"text": "done"})
    session = home.new()
    home.run("send", session, "analyse")
    kept = home.config.read_bytes()
    home.config.unlink()
    assert code("send", session, "those of May") == 13
    assert home.status(session) == "waiting_input"
    assert len(home.messages(session)) == 2
    home.config.write_bytes(kept)
    assert home.run("send", session, "those of May").code == 0
    assert home.status(session) == "completed"


def test_70_for_a_bug_which_says_that_it_is_one(home: Home, code: Code) -> None:
    # A module of Python that is broken stands for whatever nobody has thought of.
    broken = home.path / "broken"
    broken.mkdir()
    (broken / "tomllib.py").write_text("raise RuntimeError('nobody has thought of this')\n")
    env = {"PYTHONPATH": f"{broken}:{home.env.get('PYTHONPATH', '')}"}
    assert code("agents", env=env) == 70
    told = home.run("agents", "--json", env=env)
    assert (told.code, told.out, told.error["code"]) == (70, b"", "internal")
    assert "nobody has thought of this" in told.error["message"]


def test_124_for_a_wait_whose_time_ran_out(home: Home, code: Code) -> None:
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "done"})
    run = home.detach(home.new(), "analyse")
    assert code("wait", run, "--timeout", "10ms") == 124
    assert home.status(run) in ("queued", "running")
    home.open_gate()
    assert code("wait", run) == 0


def test_12_for_an_executor_whose_run_another_one_took_over(home: Home, begin: Begin) -> None:
    home.settings(top='lease = "1s"')
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "never"})
    session = home.new()
    sending = begin("send", session, "analyse")
    home.at_gate()
    found = Tree(str(home.root)).session(session)
    with writing(found) as writer:
        found.run("run-1").take_over(writer, lease_seconds=60)
    assert sending.end() == 12
    assert home.events(session)[-1]["type"] == "run.lease_acquired"
    assert home.marked(session) == []


# --- storage


def _without_room(limit: int) -> Callable[[], None]:
    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    return limited


def test_11_where_nothing_can_be_written(code: Code) -> None:
    assert code("new", preexec_fn=_without_room(0)) == 11


def test_11_before_an_id_is_printed_where_nothing_can_be_written(home: Home) -> None:
    made = home.run("new", preexec_fn=_without_room(0))
    assert (made.code, made.out) == (11, b"")
    assert "EFBIG" in made.said or "File too large" in made.said
    assert str(home.root) in made.said
    assert home.run("ls").text == ""


def test_11_and_nothing_accepted_where_the_message_has_no_room(home: Home) -> None:
    session = home.new()
    sent = home.run("send", session, "x" * 50_000, preexec_fn=_without_room(20_000))
    assert (sent.code, sent.out) == (11, b"")
    assert "messages.jsonl" in sent.said
    assert home.messages(session) == []
    assert home.run("send", session, "again").code == 0
    assert [message["text"] for message in home.messages(session)] == ["again", "a report"]


def test_11_where_a_process_may_open_too_few_files(home: Home) -> None:
    """Whatever stumbles over it, in code of ours or not, is no bug, and nothing is wrong afterwards."""
    each = '(ulimit -n $n; agentrun new --send hello >/dev/null; echo "$?") 2>>said'
    done = home.shell(f"cd '{home.path}'; for n in 12 13 14 15; do {each}; done")
    said = (home.path / "said").read_text()
    assert {"11"} <= set(done.text.split()) <= {"0", "11"}, said
    assert said.count("Too many open files (EMFILE)") == said.count("let it open more files") > 0
    assert "Traceback" not in said
    # What was accepted before is not said to be lost: it is named, with how it goes on.
    for accepted in said.split("agentrun: ")[:-1]:
        name = re.search(r"accepted as prompt #1 of (\S+)", accepted)
        assert not name or f"resume {name[1]}" in said, said
    home.run("recover")
    assert home.run("check").code == 0
    # What cannot be opened for that is no damage, and is not called so.
    looked = home.shell('for n in 8 10 12 13; do (ulimit -n $n; agentrun check; echo "$?"); done')
    assert {*looked.text.split()} <= {"0", "11"}, looked
    assert "11" in looked.text.split()


def test_11_where_not_even_the_words_for_it_can_be_loaded(home: Home) -> None:
    for words in ("new x", "show", "ls --json", "search x"):
        done = home.shell(f"ulimit -n 6; agentrun {words}")
        assert (done.code, done.out) == (11, b""), (words, done)
        assert b"Too many open files" in done.err
        assert done.err.count(b"\n") <= 2


# As in a process that may have no further thread, a user's or a container's share of them being used up. A limit of
# one's own would not do: root has none (setrlimit(2)).
NO_THREAD = """
import sys, threading, _thread
def refuse(*_): raise RuntimeError("can't start new thread")
threading._start_new_thread = refuse
from agentrun.cli.main import main
sys.argv[0] = "agentrun"
main()
"""


def test_11_where_a_process_may_have_no_further_thread(home: Home) -> None:
    """It is no bug, uses up no attempt, and the run goes on once there are some."""
    session = home.new()

    def tight(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", NO_THREAD, *words]
        return subprocess.run(argv, env=home.env, capture_output=True, text=True, timeout=50, check=False)

    for words in (["send", session, "hello"], ["resume", session], ["resume", session], ["resume", session]):
        failed = tight(*words)
        assert failed.returncode == 11, failed
        assert "ulimit -u" in failed.stderr
        assert f"resume {session}/run-1" in failed.stderr
        assert "Traceback" not in failed.stderr
    assert home.run("resume", session).text == "a report\n"
    assert len(home.events(f"{session}/run-1", "run.lease_acquired")) == 1
    assert home.run("check").code == 0


def test_8_where_the_directory_that_one_is_in_was_removed(home: Home) -> None:
    """With a path that would be taken from there; all else goes on as anywhere."""
    session = home.new()
    words = (f"export {session} -o x.md", f"show {session} --html x.html", "--config x.toml agents", "--root x ls")
    tries = "; ".join(f"agentrun {each}; echo $?" for each in words)
    done = home.shell(
        f"cd '{home.path}' && mkdir gone && cd gone && rmdir ../gone && {{ {tries}; }}; agentrun send {session} hello"
    )
    assert done.text == "8\n" * len(words) + "a report\n", done
    assert done.said.count("was removed") == len(words)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is no such limit")
def test_11_where_a_process_may_have_too_little_memory(home: Home) -> None:
    """What that stumbles over is no bug; a configuration takes no more of it than it has."""
    session = home.new()
    assert home.shell('ulimit -v 90000; agentrun send "$1" hello --detach', session).code == 0
    (home.path / "big.txt").write_bytes(b"x" * 50_000_000)
    failed = home.shell(f'ulimit -v 90000; agentrun send "$1" --file {home.path}/big.txt --detach', session)
    assert (failed.code, failed.out) == (11, b""), failed
    assert b"(ENOMEM)" in failed.err
    assert b"Traceback" not in failed.err


def test_what_is_no_directory_is_said_once(home: Home) -> None:
    (home.path / "file").touch()
    for root in (home.path / "file", home.path / "file" / "below"):
        failed = home.run("--root", str(root), "new")
        assert failed.code == 9
        assert failed.said.count("/file is no directory (ENOTDIR)") == 1
    assert home.run("--root", str(home.path / "file"), "new").said.count("/file") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_11_on_a_tree_that_cannot_be_written(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "analyse").code == 0
    before = sorted(path for path in home.path.rglob("*"))
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    read_only = ["unshare", "--mount", "sh", "-c", script, str(home.root)]
    if subprocess.run([*read_only, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount name space may be made here")

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        argv = [*read_only, sys.executable, "-m", "agentrun", *arguments]
        return subprocess.run(argv, env=home.env, capture_output=True, check=False)

    for arguments in (["new"], ["send", session, "x"], ["send", session, "x", "--detach"]):
        failed = run(*arguments)
        assert (failed.returncode, failed.stdout) == (11, b""), failed.stderr
        assert b"EROFS" in failed.stderr
        assert str(home.root).encode() in failed.stderr
    assert json.loads(run("new", "--json").stderr)["error"]["code"] == "storage"
    for arguments in (["show", session], ["show", f"{session}/1"], ["ls"], ["show", "-f", session]):
        shown = run(*arguments)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout
    assert sorted(path for path in home.path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_finds_nothing_and_makes_nothing(home: Home) -> None:
    session = home.new()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = Path(name, "root")
        shutil.copytree(home.root, root)
        for path in (Path(name), root, root / "accounts"):
            path.chmod(0o755)
        env = home.env | {"AGENTRUN_ROOT": str(root), "HOME": str(home.path)}
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

        def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
            argv = [*become, sys.executable, "-m", "agentrun", *arguments]
            return subprocess.run(argv, env=env, capture_output=True, check=False, cwd="/")

        if run("--version").returncode:
            pytest.skip("the package is closed to others")
        before = sorted(Path(name).rglob("*"))
        for arguments in (["show", session], ["send", session, "x"], ["cancel", session]):
            assert run(*arguments).returncode == 8
        for arguments in (["show", session], ["send", session, "x"]):
            failed = run(*arguments, "--account", home.sessions.parent.name)
            assert failed.returncode in (8, 9), failed.stderr
            assert session.encode() not in failed.stdout
        made = run("new")
        assert (made.returncode, made.stdout) == (9, b""), made.stderr
        assert str(root).encode() in made.stderr
        assert sorted(Path(name).rglob("*")) == before


def test_every_code_of_the_table_is_shown_in_a_pipe_and_on_a_terminal() -> None:
    here, endings = (Path(__file__).with_name(name).read_text() for name in (Path(__file__).name, "test_endings.py"))
    both = re.findall(r"^def test_(\d+)_\w+\(.*\b(?:code: Code|begin: Begin)\b", here, re.MULTILINE)
    both += re.findall(r"\bEnding\((\d+), ", endings)
    assert {int(each) for each in both} >= {0, *EXIT_CODES.values()}


def test_a_umask_that_takes_from_the_owner_leaves_a_tree_that_he_can_use(home: Home) -> None:
    """And what it keeps from others it keeps from others, also in what a tool makes."""
    # case C20
    home.tool("work", f"mkdir '{home.path}/made'")
    home.model({"calls": [{"name": "work"}]}, {"text": "a report"})
    done = home.shell("umask 0727; agentrun new --send hello; umask 0022; agentrun check")
    assert done.code == 0, done
    parts = [home.root / "accounts", *(home.root / "accounts").rglob("*")]
    modes = {oct(each.stat().st_mode & 0o777) for each in parts if not each.is_dir()}
    assert modes == {"0o600"}
    assert {oct(each.stat().st_mode & 0o777) for each in parts if each.is_dir()} == {"0o700"}
    assert oct((home.path / "made").stat().st_mode & 0o777) == "0o750"
