"""The command line as its users have it: real processes, pipes, terminals and signals, in a home of their own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyte
import pytest
import warm

T = TypeVar("T")
Doc = dict[str, Any]

# Longer than anything takes on a busy machine; nothing waits for it to pass.
PATIENCE = 90.0
AGENTRUN = (sys.executable, "-m", "agentrun")
# What a shell script that stands as a tool says to be let go on: it notes that it has come so far, and waits for a
# file, which the test makes.
_GATE = 'echo >>"{path}.reached"; while [ ! -e "{path}" ]; do sleep 0.02; done'

# Runs the command lines of a file one after the other, each between a line with its number and one with its code.
_DRIVER = """
import json, os, sys
from agentrun.cli.command_line import run
for number, argv in enumerate(json.load(open(sys.argv[1]))):
    os.write(1, b"=== %d\\n" % number)
    code = run(argv)
    sys.stdout.flush()
    os.write(1, b"--- %d\\n" % code)
os._exit(0)
"""


def until(look: Callable[[], T], what: str = "what the test waits for", patience: float = PATIENCE) -> T:
    """What `look` returns as soon as it is something; fails the test if it stays nothing."""
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)


def state(pid: int) -> str:
    """The letter that proc_pid_stat(5) has for a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_gone(pid: int) -> bool:
    """Whether a process has ended, whoever has taken notice of that."""
    return state(pid) in ("", "Z")


class Result(NamedTuple):
    """How a command ended; a signal is a code of 128 and its number, as shells have it."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def said(self) -> str:
        return self.err.decode("utf-8")

    @property
    def docs(self) -> list[Doc]:
        """Standard output as lines of JSON."""
        return [json.loads(line) for line in self.out.decode("utf-8").split("\n")[:-1]]

    @property
    def error(self) -> Doc:
        """The one line of standard error, which is an envelope of JSON."""
        lines = self.err.decode("utf-8").split("\n")
        assert lines[1:] == [""], f"not one line: {self.err!r}"
        return dict(json.loads(lines[0])["error"])


def shell_code(code: int) -> int:
    return 128 - code if code < 0 else code


class Running:
    """A command that goes on while the test does other things."""

    def __init__(self, process: subprocess.Popen[bytes] | warm.Warm) -> None:
        self.process = process
        self.pid = process.pid

    def end(self, patience: float = PATIENCE) -> Result:
        out, err = self.process.communicate(timeout=patience)
        return Result(shell_code(self.process.returncode), out or b"", err or b"")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None


class Terminal:
    """A command on a terminal of its own. `raw` is every byte that the command sent, `screen` what they make."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, columns: int, rows: int, **kwargs: Any) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._name = os.ttyname(slave)
        self.process = _on_terminal(argv, env, self._name, kwargs)
        self.pid = self.process.pid
        self.raw = b""
        self.columns = columns
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self._is_open = True
        self._slave: int | None = slave

    def _read(self, seconds: float) -> bool:
        if not self._is_open or not select.select([self._master], [], [], seconds)[0]:
            return False
        if self._slave is not None and self._has_begun():
            self._release()
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self._is_open = False
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def _has_begun(self) -> bool:
        """Whether the command has the terminal open, or is gone. Until then it is held, lest it hangs up.

        That there is something to read proves nothing: what the test types is echoed by the kernel, whoever is there.
        """
        if self.process.poll() is not None:
            return True
        try:
            return any(os.readlink(each) == self._name for each in Path(f"/proc/{self.pid}/fd").iterdir())
        except OSError:  # a descriptor of it was just closed, or it is just ending
            return False

    @property
    def lines(self) -> list[str]:
        """What the user can see, scrolling up included."""
        above = ["".join(line[column].data for column in range(self.columns)) for line in self._screen.history.top]
        return [line.rstrip() for line in [*above, *self._screen.display]]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n")

    def wait_for(self, words: str, *, count: int = 1, patience: float = PATIENCE) -> str:
        """Reads on until `words` have been shown `count` times. All that was shown."""
        deadline = time.monotonic() + patience
        while self.text.count(words) < count:
            there = f"{words!r} did not come; there is:\n{self.text}"
            assert time.monotonic() < deadline, there
            if not self._read(0.05) and self.process.poll() is not None and not self._read(0):
                assert self.text.count(words) >= count, there
        return self.text

    def type(self, text: str) -> None:
        os.write(self._master, text.encode("utf-8", "surrogateescape"))

    def press_ctrl(self, letter: str) -> None:
        self.type(chr(ord(letter.upper()) - 64))

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen.resize(rows, columns)

    def hang_up(self) -> None:
        """Closes the window."""
        self._release()
        os.close(self._master)
        self._is_open = False
        self._master = -1

    def end(self, patience: float = PATIENCE) -> int:
        """Reads on until the command has ended. Its exit code."""
        deadline = time.monotonic() + patience
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end; there is:\n{self.text}"
            if not self._read(0.02) and self._master == -1:
                time.sleep(0.01)
        self._release()
        # What was written last may still be on its way through the terminal, which ends after it.
        while self._read(0.5):
            pass
        return shell_code(self.process.returncode)

    def _release(self) -> None:
        if self._slave is not None:
            os.close(self._slave)
            self._slave = None

    def close(self) -> None:
        self._release()
        if self._master != -1:
            os.close(self._master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def _on_terminal(
    argv: Sequence[str], env: Mapping[str, str], terminal: str, kwargs: Doc
) -> subprocess.Popen[bytes] | warm.Warm:
    """Starts a command as the leader of a session on the terminal."""
    if not kwargs and tuple(argv[: len(AGENTRUN)]) == AGENTRUN:
        started = warm.on_terminal(argv[len(AGENTRUN) :], env, terminal)
        if started is not None:
            return started
    # The first terminal that the leader of a session opens is the one that it gets its signals from.
    redirected = kwargs.pop("redirected", "")
    shell = ["/bin/sh", "-c", f'exec <>"$0" >&0 2>&0 {redirected}; exec "$@"', terminal]
    return subprocess.Popen([*shell, *argv], env=env, start_new_session=True, **kwargs)


class Home:
    """A root, a configuration with one agent called `analyst`, and the commands that work on them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        self.config = path / "agentrun.toml"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(path / "home"),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "AGENTRUN_ROOT": str(self.root),
            "AGENTRUN_CONFIG": str(self.config),
        }
        # The package under test may be a copy of the installed one (`make mutants`), for every process alike.
        if "PYTHONPATH" in os.environ:
            self.env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self._tools: dict[str, str] = {}
        self._top = ""
        self._agent = ""
        self._open: list[Running | Terminal] = []
        (path / "home").mkdir()
        self.model({"text": "a report"})

    # What the agent will do.

    def model(self, *turns: Doc) -> None:
        """The turns of the scripted model."""
        _replace(self.path / "script.json", json.dumps({"turns": turns}))
        self._write_config()

    def tool(self, name: str, script: str, **settings: object) -> None:
        """A tool that is a shell script; `settings` as in the configuration."""
        settings = {"effect": "read"} | settings
        lines = [f"[tools.{name}]", f"argv = {json.dumps(['/bin/sh', '-c', script])}"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        self._tools[name] = "\n".join(lines)
        self._write_config()

    def gate(self, name: str = "gate") -> str:
        """A line of shell that waits until `open_gate`. `at_gate` waits for a tool to come to it."""
        return _GATE.format(path=self.path / name)

    def at_gate(self, count: int = 1, name: str = "gate") -> None:
        """Waits until tools have come to a gate, `count` times in all: they are there, and heed what stands before it.

        The event `tool.started` says that a tool is about to be begun; its process may come long after that.
        """
        reached = self.path / f"{name}.reached"
        until(lambda: reached.exists() and reached.read_bytes().count(b"\n") >= count, f"a tool at its {name}")

    def open_gate(self, name: str = "gate") -> None:
        (self.path / name).touch()

    def settings(self, *, top: str = "", agent: str = "") -> None:
        """More lines of the configuration, at its top and in the agent's table."""
        self._top, self._agent = top, agent
        self._write_config()

    def _write_config(self) -> None:
        agent = [
            "[agents.analyst]",
            'model = "scripted:script.json"',
            f"tools = {json.dumps(list(self._tools))}",
            self._agent,
        ]
        text = "\n".join([self._top, *agent, *self._tools.values()])
        _replace(self.config, text + "\n")

    # Commands.

    def argv(self, *arguments: str | bytes) -> list[str]:
        return [*AGENTRUN, *(os.fsdecode(each) for each in arguments)]

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = b"",
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        **kwargs: Any,
    ) -> Result:
        """Runs a command to its end, its standard output and standard error being pipes."""
        words = [os.fsdecode(each) for each in arguments]
        streams: Doc = {"stdin": None} if stdin is None else {}
        environment = self.env | dict(env or {})
        done = warm.run(words, environment, text=stdin, timeout=patience, **(streams | kwargs))
        return Result(shell_code(done.returncode), done.stdout, done.stderr)

    def shell(self, script: str, *arguments: str, patience: float = PATIENCE) -> Result:
        """Runs a shell script in which `agentrun` is the command, `$1` the first of `arguments`."""
        begin = f'agentrun() {{ "{sys.executable}" -m agentrun "$@"; }}\n'
        done = subprocess.run(
            ["/bin/sh", "-c", begin + script, "sh", *arguments],
            stdin=subprocess.DEVNULL,
            env=self.env,
            capture_output=True,
            timeout=patience,
            check=False,
        )
        return Result(shell_code(done.returncode), done.stdout, done.stderr)

    def start(self, *arguments: str | bytes, env: Mapping[str, str] | None = None, **kwargs: Any) -> Running:
        """Starts a command in pipes."""
        streams: Doc = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        words = [os.fsdecode(each) for each in arguments]
        running = Running(warm.popen(words, self.env | dict(env or {}), **(streams | kwargs)))
        self._open.append(running)
        return running

    def terminal(
        self,
        *arguments: str | bytes,
        columns: int = 100,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> Terminal:
        """Starts a command on a terminal."""
        return self.on_terminal(self.argv(*arguments), columns=columns, rows=rows, env=env, **kwargs)

    def on_terminal(
        self,
        argv: Sequence[str],
        *,
        columns: int = 100,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> Terminal:
        """Starts any program on a terminal."""
        terminal = Terminal(argv, self.env | dict(env or {}), columns=columns, rows=rows, **kwargs)
        self._open.append(terminal)
        return terminal

    def drive(self, argvs: Sequence[Sequence[str]], *, columns: int = 120) -> list[tuple[int, str]]:
        """Runs many commands one after the other in one process on a terminal: exit code and raw text of each."""
        path = self.path / "commands.json"
        path.write_text(json.dumps(argvs), encoding="utf-8")
        argv = [sys.executable, "-c", _DRIVER, str(path)]
        terminal = self.on_terminal(argv, columns=columns, cwd=self.path, redirected="</dev/null")
        assert terminal.end() == 0, terminal.text
        found = re.findall(r"=== (\d+)\r\n(.*?)--- (\d+)\r\n", terminal.raw.decode("utf-8"), re.DOTALL)
        assert [int(number) for number, _, _ in found] == list(range(len(argvs)))
        return [(int(code), text) for _, text, code in found]

    def new(self, *arguments: str | bytes) -> str:
        """Makes a session; its id."""
        made = self.run("new", *arguments)
        assert made.code == 0, made.said
        return made.text.strip()

    def detach(self, session: str, text: str, *arguments: str) -> str:
        """Sends a prompt, detached; `SESSION/RUN`."""
        sent = self.run("send", session, text, "--detach", *arguments)
        assert sent.code == 0, sent.said
        return sent.text.strip()

    def ask_to_stop(self, run: str, *arguments: str) -> None:
        """Cancels a run without waiting for its end; it may be over all the same by the time that the command looks."""
        asked = self.run("cancel", run, *arguments, "--json")
        assert asked.docs, asked.said
        assert asked.code == {"cancelled": 0}.get(asked.docs[0]["status"], 6)

    # What is on disk.

    @property
    def sessions(self) -> Path:
        (account,) = (self.root / "accounts").iterdir()
        return account / "sessions"

    def session_dir(self, session: str) -> Path:
        return self.sessions / session.partition("/")[0]

    def run_dir(self, run: str) -> Path:
        session, _, run_id = run.partition("/")
        return self.sessions / session / "runs" / (run_id or "run-1")

    def messages(self, session: str) -> list[Doc]:
        return _lines(self.session_dir(session) / "messages.jsonl")

    def events(self, run: str, *types: str) -> list[Doc]:
        """The events of a run, or those of some types."""
        events = _lines(self.run_dir(run) / "operations.jsonl")
        return [event for event in events if not types or event["type"] in types]

    def status(self, run: str) -> str:
        """What `run.json` says."""
        path = self.run_dir(run) / "run.json"
        return str(json.loads(path.read_bytes())["status"]) if path.exists() else ""

    def view(self, run: str) -> Doc:
        """What `show` says of a run."""
        shown = self.run("show", run, "--json")
        assert shown.code == 0, shown.said
        return dict(shown.docs[0]["run"])

    def wait_for_event(self, run: str, kind: str, count: int = 1) -> list[Doc]:
        """Those events, once there are so many. One says what will be done: for what is there, wait for that itself."""

        def look() -> list[Doc]:
            path = self.run_dir(run) / "operations.jsonl"
            found = self.events(run, kind) if path.exists() else []
            return found if len(found) >= count else []

        return until(look, f"{kind} of {run}")

    def wait_for_status(self, run: str, *statuses: str) -> str:
        return until(lambda: self.status(run) in statuses and self.status(run), f"{run} being {statuses}")

    def executor(self, run: str) -> int:
        """The process that drives a run."""
        acquired = self.wait_for_event(run, "run.lease_acquired")
        return int(acquired[-1]["payload"]["owner"]["pid"])

    def suspend(self, run: str, pid: int) -> None:
        """Stops the executor `pid` of a run, at a moment at which it does not hold the session's lock."""
        session = os.open(self.session_dir(run), os.O_RDONLY)
        try:
            fcntl.flock(session, fcntl.LOCK_EX)
            os.kill(pid, signal.SIGSTOP)
            until(lambda: state(pid) == "T", "the executor standing still")
        finally:
            os.close(session)

    def marked(self, session: str = "") -> list[int]:
        """The processes that the runs of this root have left on this machine: those of their tools.

        One that has just been started carries the mark only once it is the tool's program, see `at_gate`.
        """
        return self._with_mark(f"AGENTRUN_SESSION={session}")

    def _with_mark(self, mark: str) -> list[int]:
        """The processes with this root and with a variable that begins like `mark`."""
        found = []
        root = f"AGENTRUN_ROOT={self.root}".encode()
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                environment = Path(entry.path, "environ").read_bytes()
            except OSError:
                continue
            if root in environment.split(b"\0") and mark.encode() in environment:
                found.append(int(entry.name))
        return found

    def close(self) -> None:
        for each in self._open:
            if isinstance(each, Terminal):
                each.close()
                continue
            with each.process:
                each.process.kill()
        # Executors that are still at work, as those of a failed test, before the tools that they would go on without.
        for mark in ("AGENTRUN_DETACHED_RUN=", "AGENTRUN_SESSION="):
            for pid in self._with_mark(mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _replace(path: Path, text: str) -> None:
    """Writes a file that a run which goes on may be reading: it finds the old text or the new one."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _lines(path: Path) -> list[Doc]:
    if not path.exists():
        return []
    # A line without its newline is still being written.
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., Any]:
    return until
