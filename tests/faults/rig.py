"""A place with a tree, a scripted model and three tools, and commands that are interrupted at a chosen system call.

Calls are counted among those that change the tree alone (`system_calls`), so that the n-th one is the same in every run
whatever the interpreter does besides.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import system_calls
import warm
from history import Ledger, messages_of, problems, runs_of

Call = system_calls.Seen
Doc = dict[str, Any]
Started = subprocess.Popen[bytes] | warm.Warm

# Generous: a busy machine is no failure.
PATIENCE = 40.0
SESSION = "s1"

# Exit codes.
DONE, CANCELLED, WAITING, NOT_OVER, CONFLICT = 0, 3, 5, 6, 7

CONFIG = """\
default_agent = "analyst"
lease = "{lease}"

[agents.analyst]
kind = "loop"
model = "scripted:script.json"
tools = ["look", "count", "slow", "slow_count", "asked_count"]

[tools.look]
argv = ["sh", "-c", "cat >/dev/null; echo rows"]
effect = "read"

[tools.count]
argv = ["sh", "-c", "cat >/dev/null; echo $AGENTRUN_RUN $AGENTRUN_OPERATION >>effects"]
effect = "write"
approve = "auto"

[tools.asked_count]
argv = ["sh", "-c", "cat >/dev/null; echo $AGENTRUN_RUN $AGENTRUN_OPERATION >>effects"]
effect = "write"
approve = "ask"

[tools.slow]
argv = ["sh", "-c", "cat >/dev/null; . ./wait.sh; echo rows"]
effect = "read"

[tools.slow_count]
argv = ["sh", "-c", "cat >/dev/null; echo $AGENTRUN_RUN $AGENTRUN_OPERATION >>effects; . ./wait.sh"]
effect = "write"
approve = "auto"
"""

# Each run begins anew with the first turn; the words of its input choose what happens.
SCRIPT: Doc = {
    "turns": [
        # Twice: whoever takes a summary up whose writer died before it was stored asks again.
        {"ifContains": "Summarise the conversation", "text": "They have talked about it."},
        {"ifContains": "Summarise the conversation", "text": "They have talked about it."},
        {
            "ifContains": "whole",
            "text": "Looking at both weeks.",
            "calls": [
                {"name": "look", "arguments": {"week": 12}},
                {"name": "look", "arguments": {"week": 13}},
                {"name": "count", "arguments": {}},
            ],
        },
        {"ifContains": "whole", "ask": "Which week counts?"},
        {
            "ifContains": "both",
            "text": "Looking, and counting.",
            "calls": [{"name": "look", "arguments": {}}, {"name": "count", "arguments": {}}],
        },
        {"ifContains": "hold", "text": "Waiting.", "calls": [{"name": "slow", "arguments": {}}]},
        {"ifContains": "export", "text": "Exporting.", "calls": [{"name": "slow_count", "arguments": {}}]},
        {"ifContains": "doomed", "text": "Waiting.", "calls": [{"name": "slow", "arguments": {}}]},
        {"ifContains": "doomed", "text": "It found {{op:nothing}}."},
        {"ifContains": "brief", "text": "It is done now.", "delayMs": 20},
        {"ifContains": "unhurried", "text": "It is done now.", "delayMs": 2000},
        {"ifContains": "stream", "text": "one two three four five six seven eight nine ten " * 40, "delayMs": 50},
        {"text": "The report is here."},
        {"text": "The report is here, again."},
        {"text": "The report is here, once more."},
        {"text": "The report is here, after all."},
    ]
}


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.code}, {self.err.strip() or self.out[-200:].strip()}"

    __repr__ = __str__

    def lines(self) -> list[Doc]:
        return [json.loads(line) for line in self.out.splitlines()]


class Stage:
    """A tree in `base`, and the commands that work on it. `ledger` has what they acknowledged."""

    def __init__(self, base: Path, *, root: Path | None = None, lease: str = "60s") -> None:
        self.base = base
        self.root = root or base / "root"
        self.ledger = Ledger()
        self.config = base / "agentrun.toml"
        self.config.write_text(CONFIG.format(lease=lease))
        (base / "script.json").write_text(json.dumps(SCRIPT))
        (base / "wait.sh").write_text("until [ -e go ]; do sleep 0.02; done\n")
        self._kept = base / "kept"
        # What was to interrupt the last command.
        self.watch: system_calls.Watch | None = None
        self._executors: set[int] = set()
        unwanted = ("AGENTRUN_", "PYTHON", "LC_")
        environment = {k: v for k, v in os.environ.items() if k == "PYTHONPATH" or not k.startswith(unwanted)}
        self.environment: Mapping[str, str] = environment | {
            "AGENTRUN_ROOT": str(self.root),
            "AGENTRUN_CONFIG": str(self.config),
            "LANG": "C.UTF-8",
        }

    # --- commands

    def run(self, *words: str, before: Iterable[str] = (), text: str | None = None) -> Done:
        """Runs a command to its end; what it acknowledged goes into the ledger."""
        if before:
            argv = [*before, sys.executable, "-m", "agentrun", *words, "--json"]
            done = subprocess.run(
                argv, env=self.environment, cwd=self.base, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=PATIENCE, check=False,
            )  # fmt: skip
        else:
            done = warm.run([*words, "--json"], self.environment, timeout=PATIENCE, cwd=self.base)
        return self._heard(done.returncode, done.stdout, done.stderr, text)

    def _heard(self, code: int, out: bytes, err: bytes, text: str | None) -> Done:
        self.ledger.heard(out.decode(), text=text)
        return Done(code, out.decode(), err.decode())

    def start(self, *words: str) -> Started:
        """Starts a command; its output is of no interest."""
        null = subprocess.DEVNULL
        streams = {"stdin": null, "stdout": null, "stderr": null}
        return warm.popen([*words, "--json"], self.environment, cwd=self.base, **streams)

    def ready(self, *words: str, gate: Path | None = None) -> warm.Warm:
        """A command that acts at once, or as soon as the file `gate` is there; its outputs are pipes."""
        pipe = subprocess.PIPE
        streams: Doc = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
        return warm.Warm(
            [*words, "--json"], self.environment, cwd=self.base, probe=str(gate) if gate else None, **streams
        )

    def end(self, process: Started, text: str | None = None) -> Done:
        """Waits for the end of a command that was begun with pipes."""
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode is not None
        return self._heard(process.returncode, out, err, text)

    def send(self, text: str, *words: str) -> Done:
        """Sends a text to the session."""
        return self.run("send", SESSION, text, *words, text=text)

    def view(self, run_id: str) -> Doc:
        """What `show` says of a run."""
        done = self.run("show", f"{SESSION}/{run_id}")
        assert done.code == DONE, done
        run: Doc = done.lines()[0]["run"]
        return run

    # --- interrupted commands

    def calls(self, *words: str, begin: Callable[[], None]) -> list[Call]:
        """The calls that change the tree in a run of the command that nothing interrupts.

        `begin` makes the situation in which the command runs.
        """
        begin()
        watch = system_calls.Watch(self.root, tells=True)
        done = self._watched(watch, words)
        assert done.code in (DONE, WAITING, NOT_OVER), done
        self.end_executors()
        return watch.seen

    def interrupted(self, call: Call, fault: str, *words: str, text: str | None = None) -> Done:
        """Runs the command with `fault` (`signal=KILL`, `error=ENOSPC`) at the call."""
        tells = fault.startswith("error=")
        self.watch = system_calls.Watch(self.root, (call.name, call.number), fault, tells=tells)
        return self._watched(self.watch, words, text)

    def refused(self) -> list[Call]:
        """The calls of the last interrupted command, the last being the one that was refused; none if none was.

        It has the number that was asked for, and need not be the same one: the order of what runs at the same time
        varies.
        """
        assert self.watch is not None
        return self.watch.seen[: self.watch.seen.index(self.watch.met) + 1] if self.watch.met else []

    def _watched(self, watch: system_calls.Watch, words: Iterable[str], text: str | None = None) -> Done:
        pipe = subprocess.PIPE
        streams: Doc = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
        arguments = [*words, "--json"]
        with warm.Warm(arguments, self.environment, cwd=self.base, watched_by=watch.theirs, **streams) as process:
            try:
                watch.begin(process.pid)
                out, err = process.communicate(timeout=PATIENCE)
            except BaseException:
                process.kill()  # its end would be waited for without end
                raise
        assert process.returncode is not None
        return self._heard(process.returncode, out, err, text)

    def held_at(self, call: Call, *words: str, text: str | None = None) -> Held | None:
        """Begins the command and stops it right after the call; None if the call did not come, and it has ended."""
        held = Held(self, call, words, text)
        return held if held.pid is not None else None

    # --- the tree as it was

    def keep(self) -> None:
        """Remembers the tree and what was acknowledged."""
        shutil.rmtree(self._kept, ignore_errors=True)
        if self.root.exists():
            shutil.copytree(self.root, self._kept)
        self._kept_ledger = self.ledger.copy()
        self._kept_effects = self.effects()

    def put_back(self) -> None:
        """Makes the tree what it was at `keep`."""
        self.end_executors()
        shutil.rmtree(self.root, ignore_errors=True)
        if self._kept.exists():
            shutil.copytree(self._kept, self.root)
        self.ledger = self._kept_ledger.copy()
        for name in ("effects", "go"):
            (self.base / name).unlink(missing_ok=True)
        if self._kept_effects:
            (self.base / "effects").write_text("".join(f"{line}\n" for line in self._kept_effects))

    # --- judging

    def check(self, *, settled: bool) -> list[str]:
        """What is wrong with the tree, and with what the write tools did."""
        # A writer that is alive and at it is let finish.
        with self.locked():
            return problems(self.root, self.ledger, settled=settled) + self._check_effects()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the session's lock, as a shell does it: a lock on its directory. Without a session there is none."""
        path = next(iter(self.root.glob(f"accounts/*/sessions/{SESSION}")), self.base)
        fd = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def let_go(self) -> None:
        """Lets the tools that wait go on."""
        (self.base / "go").touch()

    def executor(self, run_id: str = "run-1") -> int:
        """The pid of a run's executor, as soon as it has the lease."""
        found = until(lambda: self._lease(run_id), f"{run_id} is executed")
        pid = int(found["owner"]["pid"])
        self._executors.add(pid)
        return pid

    def hold(self, text: str = "hold", event: str = "tool.started") -> int:
        """Starts a run in the background, and waits until it is at the event; returns its executor's pid."""
        done = self.send(text, "--detach")
        assert done.code == DONE, done
        run_id = str(done.lines()[0]["runId"])
        self.event(run_id, event)
        return self.executor(run_id)

    def detached(self) -> set[int]:
        """The executors of this tree that belong to no command, whoever started them."""
        # The look takes its time: who was not there yet at its beginning may have been begun by one that has ended.
        return self._detached() or self._detached()

    def _detached(self) -> set[int]:
        mark = os.fsencode(self.root)
        found = ((pid, _command_line(pid)) for pid in _pids())
        return {pid for pid, words in found if b"agentrun.cli.detached" in words and mark in words}

    def processes(self) -> list[int]:
        """All processes of this tree that are alive: commands, executors, and what their tools started."""
        mark = os.fsencode(f"AGENTRUN_ROOT={self.root}")
        return [pid for pid in _pids() if _is_alive(pid) and mark in _environment(pid)]

    def has_executor(self) -> bool:
        """Whether an executor is, or was a moment ago, at work beside the commands."""
        return bool(self._executors)

    def kill(self, pid: int) -> None:
        """Kills an executor, and waits until it is gone, and with it its locks."""
        words = _command_line(pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not _is_alive(pid), f"{pid} is gone")
        # What it was about to start has its command line, and its locks, until it runs a program of its own.
        until(lambda: not any(_command_line(each) == words for each in _pids()), f"what {pid} was starting has begun")

    def freeze(self, pid: int) -> None:
        """Stops an executor while it does not hold the session's lock, and waits until it stands still."""
        with self.locked():
            os.kill(pid, signal.SIGSTOP)
            until(lambda: is_stopped(pid), f"{pid} stands still")

    def end_executors(self) -> None:
        """Lets the executors that are known end by themselves, and kills those that do not."""
        self.let_go()
        for pid in self._executors | self.detached():
            try:
                until(lambda pid=pid: not _is_alive(pid), "its executor has ended", patience=5)
            except AssertionError:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                until(lambda pid=pid: not _is_alive(pid), "its executor is gone")
        self._executors.clear()

    def lost(self, run_id: str = "run-1") -> None:
        """Waits until nobody holds a run's lock: what a killed executor was about to start has it for a moment."""
        until(lambda: self._is_free(run_id), f"nobody drives {run_id}")

    def _is_free(self, run_id: str) -> bool:
        (path,) = self.root.glob(f"accounts/*/sessions/{SESSION}/runs/{run_id}")
        return not is_locked(path)

    def event(self, run_id: str, kind: str) -> Doc:
        """The first event of that type, as soon as it is there."""
        return until(lambda: self._event(run_id, kind), f"{kind} in {run_id}")

    def _event(self, run_id: str, kind: str) -> Doc | None:
        runs = [run for run in runs_of(self.root, SESSION) if run.run_id == run_id]
        return next((event for run in runs for event in run.events if event["type"] == kind), None)

    def _lease(self, run_id: str) -> Doc | None:
        for path in self.root.glob(f"accounts/*/sessions/{SESSION}/runs/{run_id}/lease.json"):
            return dict(json.loads(path.read_bytes()))
        return None

    def effects(self) -> list[str]:
        """What the tools that write have done, one line each: the run and the operation."""
        path = self.base / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def _check_effects(self) -> list[str]:
        """Each write happened at most once per dispatch, and what is told of it is true."""
        found = []
        happened = Counter(self.effects())
        if not list(self.root.glob(f"accounts/*/sessions/{SESSION}")):
            return [f"{name} happened without a session" for name in happened]
        told: set[str] = set()
        for run in runs_of(self.root, SESSION):
            for operation_id, operation in run.operations.items():
                name = f"{run.run_id} {operation_id}"
                told.add(name)
                times = happened[name]
                if times > operation.dispatched or times > 1:
                    found.append(f"{name} happened {times} times, {operation.dispatched} dispatches are recorded")
                if operation.effect == "write" and operation.status == "succeeded" and times != 1:
                    found.append(f"{name} is told as succeeded and happened {times} times")
                if operation.status == "skipped" and times:
                    found.append(f"{name} is told as skipped and happened")
        return found + [f"{name} happened and nothing registered it" for name in happened if name not in told]


class Held:
    """A command that stands still behind one of its calls. `pid` is its process; None if the call did not come."""

    def __init__(self, stage: Stage, call: Call, words: Sequence[str], text: str | None) -> None:
        self._ended: list[Done] = []
        stage.watch = None
        work = lambda: self._ended.append(stage.interrupted(call, "signal=STOP", *words, text=text))  # noqa: E731
        self._thread = threading.Thread(target=work)
        self._thread.start()
        self._stage = stage
        self.pid = self._stopped()

    def _stopped(self) -> int | None:
        while self._thread.is_alive():
            watch = self._stage.watch
            if watch is not None and watch.has_come.is_set() and is_stopped(watch.pid):
                return watch.pid
            time.sleep(0.002)
        return None

    def go_on(self) -> None:
        """Lets it go on."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> Done:
        """Waits for its end."""
        self._thread.join()
        return self._ended[0]


def aftermath(stage: Stage, *, try_send_first: bool) -> list[str]:
    """What a user does after a command died: looks, and goes on. Returns what is wrong with how it went."""
    wrong = stage.check(settled=False)
    if not list(stage.root.glob(f"accounts/*/sessions/{SESSION}")):
        return wrong + _made_anew(stage)
    wrong += _looked_at(stage)
    if try_send_first:
        # A run that is alive is not over before its tool is.
        done = stage.send("quick", *(["--detach"] if stage.has_executor() else []))
        if done.code not in (DONE, WAITING, CONFLICT):
            wrong.append(f"send: {done}")
    wrong += _cancelled(stage)
    wrong += stage.check(settled=True)
    done = stage.send("quick")
    if done.code != DONE:
        wrong.append(f"send afterwards: {done}")
    return wrong + stage.check(settled=True)


def _made_anew(stage: Stage) -> list[str]:
    wrong = []
    for words in (("ls",), ("new", "--id", SESSION)):
        done = stage.run(*words)
        if done.code != DONE:
            wrong.append(f"{words}: {done}")
    done = stage.send("quick")
    if done.code != DONE:
        wrong.append(f"send afterwards: {done}")
    return wrong + stage.check(settled=True)


def _looked_at(stage: Stage) -> list[str]:
    """Readers work, change nothing, and call no run running whose executor is gone."""
    # An executor writes when it likes, and takes away what it has replaced.
    before = None if stage.has_executor() else _contents(stage.root)
    wrong = []
    done = stage.run("show", SESSION)
    if done.code != DONE:
        return [f"show: {done}"]
    for run in done.lines()[0]["runs"]:
        if run["executor"] != "alive" and run["status"] in ("running", "compacting"):
            wrong.append(f"{run['runId']} is called {run['status']}, its executor is {run['executor']}")
    if before is not None and _contents(stage.root) != before:
        wrong.append("looking changed the tree")
    return wrong


def _cancelled(stage: Stage) -> list[str]:
    """Whatever is open ends by one `cancel --wait`."""
    done = stage.run("cancel", SESSION, "--wait", "--timeout", "30s")
    ends = [run.status for run in runs_of(stage.root, SESSION)]
    expected = {"cancelled": DONE, None: 8}.get(ends[-1] if ends else None, CONFLICT)
    if done.code != expected or set(ends) - {"completed", "cancelled"}:
        return [f"cancel: {done}, the runs are {ends}"]
    return []


def is_locked(directory: Path) -> bool:
    """Whether somebody holds the lock on `directory`."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def until(look: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The first true value that `look` returns."""
    end = time.monotonic() + patience
    while (begun := time.monotonic()) < end:
        found = look()
        if found:
            return found
        # Whoever looks takes time from what is looked for: a look over all processes comes less often.
        time.sleep(max(0.005, 4 * (time.monotonic() - begun)))
    raise AssertionError(f"it never came to be: {what}")


def end_all_below(base: Path) -> None:
    """Kills what works on a tree below `base`: executors outlive their test, and so does what their tools started."""
    mark = os.fsencode(f"AGENTRUN_ROOT={base}/")

    while left := [pid for pid in _pids() if any(each.startswith(mark) for each in _environment(pid))]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Its environment is gone before its files are.
        until(lambda pids=left: not any(_is_alive(pid) for pid in pids), f"nobody works below {base}")


def killed(done: Done) -> bool:
    """Whether SIGKILL ended the command."""
    return done.code in (-signal.SIGKILL, 128 + signal.SIGKILL)


def inputs_of(stage: Stage) -> list[Doc]:
    """What the user said in the session, in order."""
    return [message for message in messages_of(stage.root, SESSION) if message["role"] == "user"]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _is_alive(pid: int) -> bool:
    state = _state(pid)
    if state == b"Z":
        # Its first thread is gone; as long as another one is not, its files are open and its locks held.
        with suppress(OSError):
            return len(os.listdir(f"/proc/{pid}/task")) > 1
    return state not in (b"", b"Z", b"X")


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    return _state(pid) == b"T"


def _state(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b""


def _environment(pid: int) -> list[bytes]:
    return _strings(pid, "environ")


def _command_line(pid: int) -> list[bytes]:
    return _strings(pid, "cmdline")


def _strings(pid: int, name: str) -> list[bytes]:
    # No `Path`, which takes four times as long: all processes are looked at before each of thousands of trials.
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
        try:
            return os.read(fd, 1 << 17).split(b"\0")  # nobody here has more than that
        finally:
            os.close(fd)
    except OSError:
        return []


def _contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
