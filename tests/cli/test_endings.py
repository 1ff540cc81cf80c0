"""Every ending of a run, in one table: the exit code, who and how in the event, the state on disk, what is printed.

In a pipe, on a terminal and detached; nothing of a run that was stopped is alive afterwards, and another run that is
at work in the same tree goes on. The forms of `cancel` (`--force`, `--op`) are in test_cancelling, interrupts in
test_queue, parents and children in test_children.

# covers A42 A44 A47 A48 B24 B26 B58
# case C7 C9 C23 C24
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.cli.conftest import PATIENCE, until

Home = Any

pytestmark = pytest.mark.slow

PIPE, TERMINAL, DETACHED = "pipe", "terminal", "detached"
BOTH = (PIPE, TERMINAL)
EVERY = (*BOTH, DETACHED)


class Scene(NamedTuple):
    """A run at work: `sending` is the command that executes it, None if it is detached."""

    home: Home
    session: str
    run: str
    way: str
    sending: Any


class Ending(NamedTuple):
    """One row. `code` is of the command that executes the run; a detached run has none that anybody sees.

    `says` stands on the terminal, or on standard error in a pipe. `asked` is intent, via and actor of the stop:
    `executor`, `other` (a command), `owner` (of a file) or `deadline`. `act` happens once the tool is at work.
    `operation` is how the tool's call ended.
    """

    code: int
    status: str
    says: str = ""
    asked: tuple[str, str, str] | None = None
    agent: str = "stays"
    words: tuple[str, ...] = ()
    act: Callable[[Scene], None] = lambda scene: None
    ways: tuple[str, ...] = BOTH
    limit: int | None = None
    operation: str | None = None


# --- what happens


def _cancel(*words: str) -> Callable[[Scene], None]:
    return lambda scene: scene.home.ask_to_stop(scene.run, *words)


def _cancel_operation(scene: Scene) -> None:
    assert scene.home.run("cancel", scene.run, "--op", "op-2", "--wait").code == 0


def _touch(scene: Scene) -> None:
    (scene.home.run_dir(scene.run) / "cancel").touch()


def _interrupt(scene: Scene) -> None:
    assert scene.home.run("send", scene.session, "now", "--if-busy", "interrupt", "--detach").code == 0


def _signal(number: int) -> Callable[[Scene], None]:
    """As a user sends it: by the keyboard and the window on a terminal, where those do."""

    def act(scene: Scene) -> None:
        if scene.way == TERMINAL and number == signal.SIGINT:
            scene.sending.press_ctrl("c")
        elif scene.way == TERMINAL and number == signal.SIGHUP:
            scene.sending.hang_up()
        else:
            os.kill(scene.home.executor(scene.run), number)

    return act


def _ctrl_c_twice(scene: Scene) -> None:
    os.kill(scene.sending.pid, signal.SIGINT)
    scene.home.wait_for_event(scene.run, "run.cancel_requested")
    os.kill(scene.sending.pid, signal.SIGINT)
    # Long before the grace period of its tool is over.
    scene.sending.process.wait(PATIENCE)


def _then_hung_up(first: int) -> Callable[[Scene], None]:
    """As a terminal that closes does it: the kernel signals its foreground, and the shell its jobs.

    Its tool ends after the second signal, and not before.
    """

    def act(scene: Scene) -> None:
        os.kill(scene.sending.pid, first)
        until((scene.home.path / "told").exists, "its tool being told to end")
        os.kill(scene.sending.pid, signal.SIGHUP)
        scene.home.open_gate()

    return act


def _kill(scene: Scene) -> None:
    os.kill(scene.home.executor(scene.run), signal.SIGKILL)
    until(lambda: scene.home.view(scene.run)["executor"] == "lost", "its executor being lost")


def _kill_and_cancel(scene: Scene) -> None:
    _kill(scene)
    assert scene.home.run("cancel", scene.run).code == 0


def _stop_reading(scene: Scene) -> None:
    scene.sending.process.stdout.close()
    scene.home.open_gate()


# --- the table

SIGNAL = ("signal", "signal", "executor")
COMMAND = ("cancel", "command", "other")
SENTINEL = ("cancel", "sentinel", "owner")
INTERRUPT = ("interrupt", "send", "other")
DEADLINE = ("timeout", "timeout", "deadline")
GAP = "These calls gave no result"
TABLE: dict[str, Ending] = {
    # By itself.
    "completed": Ending(0, "completed", "accepted as prompt #1", agent="reports"),
    "a failed tool": Ending(0, "completed", GAP, agent="fails in its tool", operation="failed"),
    "a refused tool": Ending(0, "completed", agent="may not", operation="skipped"),
    "an unread pipe": Ending(0, "completed", act=_stop_reading, operation="succeeded", ways=(PIPE,)),
    "failed": Ending(1, "failed", "the model scripted:script.json failed", agent="has no model"),
    "an empty answer": Ending(1, "failed", "last reply is empty", agent="says nothing"),
    "waits": Ending(5, "waiting_input", "answer with: agentrun send", agent="asks"),
    "a storage error": Ending(11, "reconciling", "File too large (EFBIG)", agent="fills the disk", limit=20_000),
    # Stopped.
    "deadline": Ending(4, "timed_out", "its time is used up", DEADLINE, words=("--timeout", "1s")),
    "cancel": Ending(3, "cancelled", "cancelled by the user", COMMAND, act=_cancel(), ways=EVERY),
    "cancel --force": Ending(3, "cancelled", "cancelled", COMMAND, act=_cancel("--force"), ways=(PIPE,)),
    "touch cancel": Ending(3, "cancelled", "cancelled", SENTINEL, act=_touch, ways=(PIPE, DETACHED)),
    "interrupt": Ending(3, "cancelled", "interrupted by run-2", INTERRUPT, act=_interrupt, ways=(PIPE,)),
    "Ctrl-C": Ending(130, "cancelled", "Ctrl-C", SIGNAL, act=_signal(signal.SIGINT)),
    "Ctrl-C twice": Ending(130, "cancelling", "left at once", SIGNAL, agent="does not listen", act=_ctrl_c_twice),
    "SIGTERM": Ending(143, "cancelled", "SIGTERM", SIGNAL, act=_signal(signal.SIGTERM)),
    "SIGTERM, detached": Ending(0, "reconciling", act=_signal(signal.SIGTERM), ways=(DETACHED,)),
    "SIGHUP": Ending(129, "cancelled", "the terminal was closed", SIGNAL, act=_signal(signal.SIGHUP)),
    "SIGHUP twice": Ending(
        129, "cancelled", "(SIGHUP)", SIGNAL, "does not listen", act=_then_hung_up(signal.SIGHUP), ways=(PIPE,)
    ),
    "SIGTERM, SIGHUP": Ending(
        143, "cancelled", "SIGTERM", SIGNAL, "does not listen", act=_then_hung_up(signal.SIGTERM), ways=(PIPE,)
    ),
    "kill -9": Ending(137, "reconciling", act=_kill),
    "kill -9, and cancel": Ending(137, "cancelled", "", COMMAND, act=_kill_and_cancel, ways=(PIPE, DETACHED)),
    # One operation of it.
    "cancel --op": Ending(0, "completed", GAP, act=_cancel_operation, operation="cancelled", ways=(PIPE,)),
}
CASES = [(name, way) for name, ending in TABLE.items() for way in ending.ways]


TOOLS: dict[str, tuple[str, dict[str, str]]] = {
    # Two children, one of them in a session of its own.
    "stays": ("setsid sleep 600 & sleep 600 & {gate}", {}),
    # Until the gate is opened; then it does what it was told.
    "does not listen": ("trap ': >{told}' TERM; {gate}; trap - TERM; kill $$", {"grace": "600s"}),
    "fails in its tool": ("echo no >&2; exit 3", {}),
    "may not": ("echo", {"approve": "deny"}),
    "fills the disk": ("head -c 50000 /dev/zero", {}),
}
TURNS: dict[str, list[dict[str, Any]]] = {
    "reports": [{"text": "a report"}],
    "has no model": [],
    "says nothing": [{"text": " \n"}],
    "asks": [{"ask": "which?"}],
}
HELD = ("stays", "does not listen")
STOPPED = ("cancelled", "timed_out")
# Status on disk -> what the terminal shows of it, and what whoever only waits or watches exits with.
SHOWN = {"completed": "✓ completed", "failed": "✗ failed", "cancelled": "■ cancelled", "timed_out": "✗ timed_out"}
WATCHED = {
    "completed": 0, "failed": 1, "cancelled": 3, "timed_out": 4, "waiting_input": 5, "reconciling": 6, "cancelling": 6,
}  # fmt: skip


@pytest.mark.parametrize(("name", "way"), CASES)
def test_an_ending(home: Home, name: str, way: str) -> None:
    ending = TABLE[name]
    scene = _begin(home, ending, way)
    if ending.asked == DEADLINE:
        scene = _begun_in_time(scene, ending)
    elif ending.agent in HELD:
        home.at_gate()
    elif ending.agent == "asks" and way == TERMINAL:
        scene.sending.wait_for("\n>")
        scene.sending.press_ctrl("d")
    ending.act(scene)
    if scene.sending is not None:
        assert _end(scene, ending) == ending.code
    until(lambda: home.view(scene.run)["status"] == ending.status, f"it being {ending.status}")
    _events_say(scene, ending)
    delivered = home.run_dir(scene.run) / "report.md"
    assert delivered.exists() == (ending.status == "completed")
    if ending.status in STOPPED:
        assert home.marked(scene.session) == []
    watch = ("show", "-f") if way == TERMINAL else ("wait",)
    assert home.run(*watch, scene.run).code == WATCHED[ending.status]
    _goes_on(scene, ending)


def test_no_stop_touches_another_run(home: Home) -> None:
    """One neighbour beside several ways to stop a run, one after the other."""
    # covers A47
    stops = [TABLE[name] for name in ("cancel --force", "touch cancel", "interrupt", "SIGTERM")]
    home.tool("work", TOOLS["stays"][0].format(gate=home.gate(), told=""))
    home.model({"ifContains": "x", "calls": [{"name": "work"}]}, {"text": "a report"})
    neighbour = home.detach(home.new(), "x")
    for number, ending in enumerate(stops, 2):
        session = home.new()
        sending = home.start("send", session, "x", *ending.words)
        home.at_gate(number)
        ending.act(Scene(home, session, f"{session}/run-1", PIPE, sending))
        assert sending.end().code == ending.code
    assert home.view(neighbour)["status"] == "running"
    home.open_gate()
    home.wait_for_status(neighbour, "completed")
    assert home.events(neighbour, "run.cancel_requested") == []
    assert [each["payload"]["status"] for each in home.events(neighbour, "tool.finished")] == ["succeeded"]


def _begin(home: Home, ending: Ending, way: str) -> Scene:
    script, settings = TOOLS.get(ending.agent, ("echo", {}))
    home.tool("work", script.format(gate=home.gate(), told=home.path / "told"), **settings)
    home.model(*TURNS.get(ending.agent, [{"ifContains": "x", "calls": [{"name": "work"}]}, {"text": "a report"}]))
    session = home.new()
    sending = None
    if way == DETACHED:
        home.detach(session, "x")
    else:
        begin = home.start if way == PIPE else home.terminal
        sending = begin("send", session, "x", *ending.words, **_limits(ending.limit))
    return Scene(home, session, f"{session}/run-1", way, sending)


def _begun_in_time(scene: Scene, ending: Ending) -> Scene:
    """The run, or another one with more time, whose time was used up when its tool was at work."""
    home, reached = scene.home, scene.home.path / "gate.reached"
    for seconds in (4, 15):
        run = scene.run
        until(lambda run=run: reached.exists() or home.status(run) == ending.status, "its tool, or its end")
        if reached.exists():
            break
        scene.sending.end()
        scene = _begin(home, ending._replace(words=("--timeout", f"{seconds}s")), scene.way)
    return scene


def _limits(size: int | None) -> dict[str, Any]:
    if size is None:
        return {}
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


def _end(scene: Scene, ending: Ending) -> int:
    """Waits for the end of the command, and looks at what it said; its exit code."""
    process = scene.sending.process
    if process.stdout is not None and process.stdout.closed:
        process.stdout = None
        return int(scene.sending.end().code)
    ended = scene.sending.end()
    if scene.way == PIPE:
        # The report alone is data. Its gaps are a part of it.
        said = ended.text if ending.says == GAP else ended.said
        assert ended.text.startswith("a report\n") if ending.status == "completed" else ended.out == b""
        assert ending.says in said
        return int(ended.code)
    if ended != 129:  # the window is closed, and shows nothing any more
        # A narrow screen folds it anywhere.
        assert "".join(ending.says.split()) in "".join(scene.sending.text.split())
        assert ("a report" in scene.sending.text) == (ending.status == "completed")
    if ended not in (129, 137):
        assert f"{scene.run}  {SHOWN.get(ending.status, '')}" in scene.sending.text or ending.status not in SHOWN
    return int(ended)


def _events_say(scene: Scene, ending: Ending) -> None:
    asked = scene.home.events(scene.run, "run.cancel_requested")
    finished = scene.home.events(scene.run, "run.finished")
    ended = scene.home.events(scene.run, "tool.finished", "operation.reconciled")
    is_over = ending.status not in ("waiting_input", "reconciling", "cancelling")
    assert [each["payload"]["terminalStatus"] for each in finished] == [ending.status] * is_over
    if ending.asked is None:
        assert asked == []
    else:
        (event,) = asked
        payload = event["payload"]
        assert (payload["intent"], payload["via"], _who(scene, payload["actor"])) == ending.asked
        assert scene.home.view(scene.run)["cancelRequestedAt"] == event["at"]
    expected = "cancelled" if ending.status in STOPPED else ending.operation
    if expected is not None:
        (fact,) = ended
        assert fact["payload"]["status"] == expected
        if asked:
            assert asked[0]["seq"] < fact["seq"] < finished[0]["seq"]


def _who(scene: Scene, actor: dict[str, Any]) -> str:
    if actor["user"] == "deadline":
        return "deadline"
    if actor["pid"] is None:
        return "owner"
    executors = scene.home.events(scene.run, "run.lease_acquired")
    return "executor" if actor["pid"] == executors[0]["payload"]["owner"]["pid"] else "other"


def _goes_on(scene: Scene, ending: Ending) -> None:
    """Whatever is left open is ended by one command; then the session takes a new prompt."""
    home = scene.home
    home.open_gate()
    # What was told to stop is wound down by whoever comes next.
    is_left = ending.status in ("waiting_input", "reconciling") or (ending.status == "cancelling" and scene.way == PIPE)
    if is_left:
        assert home.run("cancel", scene.run, "--wait").code == 0
        assert home.status(scene.run) == "cancelled"
        assert home.marked(scene.session) == []
    home.model({"text": "a report"})
    sent = home.run("send", scene.session, "again", "--if-busy", "queue")
    assert (sent.code, sent.text) == (0, "a report\n"), sent.said
    assert home.status(scene.run) not in ("reconciling", "cancelling", "running")
