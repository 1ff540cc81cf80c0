"""Whole processes, from the start of a command to its end: what each costs who types it, or a script in a loop.

All take turns, on a root with 10,000 sessions. `time` is from start to end, `CPU` what the process used of it. `steer`
and `cancel` are said to a run that goes on; `send --detach` returns when its prompt is durable, and its agent has a
scripted model. The executor that it starts is waited for before the next command is measured.

What bounds these figures. `show`, `ls` and `new`: nearly all that they take beyond the interpreter's own start is
finding, reading and running some forty-five modules of agentrun; `ls` reads the document, the last run and the last
message of 20 sessions besides, a fifth of what it takes. `new` syncs eight times, `cancel` several times, and in `time`
that is the disk's. `steer` and `cancel` load some sixty modules: what may have to be redone on the way, and nothing of
what winds a run down whose executor is gone. `send --detach` loads nearly eighty, and reads the configuration before it
accepts a prompt. By instructions in user mode the start of the interpreter is one; `tomllib`, with `typing`, `re`,
`string` and `datetime`, which it loads, 1.9, a quarter of a start of which are the types of the compiler's syntax
trees, made because `typing` compiles two annotations; and all of agentrun 1.2. A bound of three and a half would leave
less for agentrun than `show` takes: it could only be kept by not reading TOML, by keeping somewhere what was read, one
more thing that can be wrong, or by a fork that reads it meanwhile, which uses a twentieth more of the processors and
takes half as long again where none is idle. All other commands: typer, with what it loads, costs between five and six
such starts, and with the start itself three quarters of what `codex --version` takes; what they do themselves adds up
to a tenth to that.

The start script is the installer's: one that a pip before 25.2 has written loads `re` first, which adds half a start to
each command of agentrun.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import peers
from frame import Reach, Size, Taken, environment, in_turns, median, percentile, ratio, reach_table, run, shown, table
from workers import Worker

from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing.trees import completed

PASS, FSYNC = "python -c pass", "python, one write and fsync"
LLM, CODEX, ACPX = "llm logs -n 3", "codex --version", "acpx --version"
LOOKING, WRITING = ("show S", "ls"), ("new T", "steer S T", "cancel S", "send S T --detach")
OTHERS = ("--help", "send --help", "show S --json", "rename S T", "search T", "agents")
# Seconds until a run that was started has come where it is wanted; only a broken one takes longer.
PATIENCE = 30.0
# Seconds that a peer may take to be measured in turns with the others.
SLOWEST = 4.0

CONFIGURATION = """\
default_agent = "quick"
[agents.quick]
model = "scripted:quick.json"
[agents.busy]
model = "scripted:busy.json"
tools = ["hold"]
[tools.hold]
argv = ["sleep", "600"]
effect = "read"
"""
SCRIPTS = {
    "quick.json": {"turns": [{"text": "Revenue fell by a fifth."}]},
    "busy.json": {"turns": [{"text": "I wait.", "calls": [{"name": "hold"}]}]},
}


class Stand:
    """A root with many sessions, the commands that are called on it, and what each took of the processor."""

    def __init__(self, size: Size) -> None:
        self.root = size.folder / "root"
        self.environment = environment(AGENTRUN_ROOT=str(self.root), HOME=str(size.folder))
        self.cpu: dict[str, list[float]] = {}
        self._agentrun = str(Path(sys.executable).with_name("agentrun"))
        self._null = os.open(os.devnull, os.O_RDWR)
        self.tree = Tree(str(self.root))
        _fill(self.tree, size.of(10_000, 20))
        (self.root / "agentrun.toml").write_text(CONFIGURATION, "utf-8")
        for name, script in SCRIPTS.items():
            (self.root / name).write_text(json.dumps(script), "utf-8")

    def ours(self, name: str, *words: str) -> Callable[[], list[float]]:
        """A way that runs a command of agentrun."""
        return self.command(name, [self._agentrun, *words])

    def command(self, name: str, argv: Sequence[str]) -> Callable[[], list[float]]:
        """A way that runs a command. Raises RuntimeError if it does not start."""
        return lambda: [self._run(name, argv)]

    def cancel(self) -> list[float]:
        """A way that cancels a run whose tool is under way."""
        return [self._run("cancel S", [self._agentrun, "cancel", self.busy().session_id])]

    def send(self) -> list[float]:
        """A way that begins a run, and waits for its end after the time was taken."""
        session = self.tree.create_session(title="the evening's figures")
        took = self._run("send S T --detach", [self._agentrun, "send", session.session_id, "analyse it", "--detach"])
        _wait(lambda: session.run("run-1").load().is_over)
        return [took]

    def busy(self) -> SessionDir:
        """A session with a run whose tool is under way."""
        session = self.tree.create_session(agent="busy")
        argv = [self._agentrun, "send", session.session_id, "wait", "--detach"]
        subprocess.run(argv, env=self.environment, check=True, capture_output=True)
        _wait(lambda: any(each.kind == "tool" for each in session.run("run-1").load().open_operations))
        return session

    def end(self, session: SessionDir) -> None:
        """Stops a run that goes on."""
        argv = [self._agentrun, "cancel", session.session_id, "--wait"]
        subprocess.run(argv, env=self.environment, check=True, capture_output=True)

    def _run(self, name: str, argv: Sequence[str]) -> float:
        streams = [(os.POSIX_SPAWN_DUP2, self._null, fd) for fd in (0, 1, 2)]
        start = time.perf_counter()
        pid = os.posix_spawn(argv[0], list(argv), self.environment, file_actions=streams)
        _, status, used = os.wait4(pid, 0)
        took = time.perf_counter() - start
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 6):  # 6: the intent of `cancel` is stored, and it did not wait
            raise RuntimeError(f"{name} ended with {code}")
        self.cpu.setdefault(name, []).append(used.ru_utime + used.ru_stime)
        return took


def measure(size: Size) -> str:
    stand = Stand(size)
    steered = stand.busy()
    try:
        taken = in_turns(_ways(stand, steered, size), size.of(11, 1))
    finally:
        stand.end(steered)
    return "\n\n".join(
        part for part in (_times(stand, taken), reach_table(_reaches(taken)), peers.missing_text()) if part
    )


def _ways(stand: Stand, steered: SessionDir, size: Size) -> dict[str, Callable[[], list[float]]]:
    looked_at = next(stand.tree.recent_ids())
    fsync = f"import os; fd = os.open({str(size.folder / 'fsync')!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)"
    ways = {
        PASS: stand.command(PASS, [sys.executable, "-c", "pass"]),
        FSYNC: stand.command(FSYNC, [sys.executable, "-c", f"{fsync}; os.write(fd, b'x'); os.fsync(fd)"]),
        "show S": stand.ours("show S", "show", looked_at),
        "ls": stand.ours("ls", "ls"),
        "new T": stand.ours("new T", "new", "the evening's figures"),
        "steer S T": stand.ours("steer S T", "steer", steered.session_id, "only new products"),
        "cancel S": stand.cancel,
        "send S T --detach": stand.send,
        "--help": stand.ours("--help", "--help"),
        "send --help": stand.ours("send --help", "send", "--help"),
        "show S --json": stand.ours("show S --json", "show", looked_at, "--json"),
        "rename S T": stand.ours("rename S T", "rename", looked_at, "another title"),
        "search T": stand.ours("search T", "search", "revenue", "--limit", "3"),
        "agents": stand.ours("agents", "agents"),
    }
    return ways | {name: stand.command(name, argv) for name, argv in _peers(stand, size).items()}


def _peers(stand: Stand, size: Size) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    git = peers.system_program("git")
    if git:
        repository = size.folder / "repository"
        begin = [str(git), "-C", str(repository), "-c", "user.name=ann", "-c", "user.email=ann@tea"]
        subprocess.run([git, "init", "-q", repository], check=True, capture_output=True)
        for number in range(30):
            words = ["commit", "-q", "--allow-empty", "-m", f"figures of evening {number}"]
            subprocess.run([*begin, *words], check=True, capture_output=True)
        found["git log -n 20"] = [*begin, "log", "-n", "20"]
    log = _llm_log(size)
    for peer, name, words in (
        (peers.LLM, LLM, ("logs", "-n", "3", "-d", str(log))),
        (peers.CODEX, CODEX, ("--version",)),
        (peers.ACPX, ACPX, ("--version",)),
        (peers.OPENCODE, "opencode session list", ("session", "list")),
    ):
        program = peers.program(peer, name.split()[0], size)
        if program:
            argv = [str(program), *words]
            why = _why_not(argv, stand.environment)
            if why:
                peers.missing[name] = why
            else:
                found[name] = argv
    return found


def _llm_log(size: Size) -> Path:
    """The database in which llm has logged some responses."""
    folder = size.folder / "llm"
    folder.mkdir()
    python = peers.python(peers.LLM, size)
    if python:
        with Worker("append_llm", folder, python=python) as worker:
            worker.call("append", 30)
    return folder / "llm.db"


def _why_not(argv: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Why a command does not take its turns; it is tried twice, since at the first time some make their files."""
    took = 0.0
    for _ in range(2):
        start = time.perf_counter()
        tried = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True, timeout=60)
        took = time.perf_counter() - start
    if tried.returncode:
        return (tried.stderr.strip().splitlines() or ["it failed"])[-1][:200]
    return f"it takes {took:.1f} s, too long to take turns" if took > SLOWEST else None


def _times(stand: Stand, taken: Taken) -> str:
    base = statistics.median(stand.cpu[PASS])
    rows = []
    for name, rounds in taken.items():
        used = statistics.median(stand.cpu[name])
        figures = (shown(median(rounds)), shown(percentile(rounds)), f"{ratio(taken, name, PASS):.2f}")
        rows.append((name, *figures, shown(used), f"{used / base:.2f}"))
    return table(("command", "time", "p99", "x pass", "CPU", "x pass"), rows)


def _reaches(taken: Taken) -> list[Reach]:
    reaches = [Reach(f"{name}, x {PASS}", ratio(taken, name, PASS), 2.5) for name in LOOKING]
    reaches += [Reach(f"{name}, x {PASS}", ratio(taken, name, PASS), 3.5) for name in WRITING]
    for peer, looking, others in ((LLM, 1 / 20, 1 / 8), (CODEX, 1 / 3, 0.9), (ACPX, None, 0.9)):
        if peer not in taken:
            continue
        if looking:
            reaches += [Reach(f"{name}, x {peer}", ratio(taken, name, peer), round(looking, 3)) for name in LOOKING]
        slowest = max(OTHERS, key=lambda name: ratio(taken, name, peer))
        reaches.append(Reach(f"the slowest other, {slowest}, x {peer}", ratio(taken, slowest, peer), others))
    return reaches


def _fill(tree: Tree, count: int) -> None:
    """Makes `count` sessions with a run that completed: one as it is made, the others as its copies."""
    first = tree.create_session(title="the evening's figures")
    completed(first, "analyse why revenue dropped")
    directory, name = Path(tree.path_of(first.session_id)), first.session_id
    activity = directory.parent.parent / "activity.jsonl"
    files = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    line = activity.read_bytes().splitlines(keepends=True)[-1]
    for number in range(count - 1):
        copy = f"session-{number:016}"
        shutil.copytree(directory, directory.with_name(copy), ignore=lambda _, names: {n for n in names if "." in n})
        for path, data in files.items():
            target = directory.with_name(copy) / path
            target.write_bytes(data.replace(name.encode(), copy.encode()))
            target.chmod(0o600)
        with activity.open("ab") as file:
            file.write(line.replace(name.encode(), copy.encode()))
    os.sync()


def _wait(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError("a run did not come where it was wanted")
        time.sleep(0.01)


if __name__ == "__main__":
    run("Whole processes", measure, __doc__)
