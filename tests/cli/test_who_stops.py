"""Who stops a run, in one table: the exit code, who and how in the event, the state on disk, and nothing left alive.

Beside each run another one is at work in the same tree, and goes on. What other tests show of these as well: the
signals in a pipe and on a terminal, and Ctrl-C twice (test_signals), SIGTERM to a detached executor (test_detached),
interrupts (test_queue), parents and children (test_children), `--force` and `--op` in their forms (test_cancelling).

# covers A42 A44 A47 A48 B26 B58
# case C7 C9 C23 C24
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow


class Scene(NamedTuple):
    """A run in its tool: `sending` is the command that executes it, None if it is detached."""

    home: Home
    session: str
    run: str
    sending: Any
    executor: int


class Expected(NamedTuple):
    """What is to be found afterwards; `code` is that of the foreground executor, None if there is none."""

    code: int | None
    intent: str | None
    via: str | None
    actor: str | None
    """`executor`, `other` (a command), `owner` (of a file) or `deadline`."""
    status: str = "cancelled"


def _cancel(scene: Scene) -> None:
    assert scene.home.run("cancel", scene.run).code == 6


def _cancel_forced(scene: Scene) -> None:
    assert scene.home.run("cancel", scene.run, "--force").code == 6


def _touch(scene: Scene) -> None:
    (scene.home.run_dir(scene.run) / "cancel").touch()


def _one_operation(scene: Scene) -> None:
    assert scene.home.run("cancel", scene.run, "--op", "op-2", "--wait").code == 0


def _interrupt(scene: Scene) -> None:
    assert scene.home.run("send", scene.session, "now", "--if-busy", "interrupt", "--detach").code == 0


def _signal(number: int) -> Callable[[Scene], None]:
    return lambda scene: os.kill(scene.executor, number)


def _hang_up(scene: Scene) -> None:
    scene.sending.hang_up()


def _kill_and_cancel(scene: Scene) -> None:
    os.kill(scene.executor, signal.SIGKILL)
    while scene.home.view(scene.run)["executor"] != "lost":
        pass
    assert scene.home.run("cancel", scene.run).code == 0


def _stop_reading(scene: Scene) -> None:
    scene.sending.process.stdout.close()
    scene.home.open_gate()


def _nothing(scene: Scene) -> None:
    """Its time runs out by itself."""


# The fact about the tool: of its executor, or of whoever winds down in its place.
OPERATION_ENDED = ("tool.finished", "operation.reconciled")
OF_A_SIGNAL = ("signal", "signal", "executor")
# who -> how the run is begun, what happens then, what is found afterwards.
TABLE: dict[str, tuple[str, Callable[[Scene], None], Expected]] = {
    "cancel, a pipe": ("pipe", _cancel, Expected(3, "cancel", "command", "other")),
    "cancel, a terminal": ("terminal", _cancel, Expected(3, "cancel", "command", "other")),
    "cancel, detached": ("detached", _cancel, Expected(None, "cancel", "command", "other")),
    "cancel --force": ("pipe", _cancel_forced, Expected(3, "cancel", "command", "other")),
    "touch cancel": ("pipe", _touch, Expected(3, "cancel", "sentinel", "owner")),
    "touch cancel, detached": ("detached", _touch, Expected(None, "cancel", "sentinel", "owner")),
    "cancel --op": ("pipe", _one_operation, Expected(0, None, None, None, "completed")),
    "Ctrl-C": ("terminal", lambda scene: scene.sending.press_ctrl("c"), Expected(130, *OF_A_SIGNAL)),
    "SIGTERM": ("pipe", _signal(signal.SIGTERM), Expected(143, *OF_A_SIGNAL)),
    "SIGTERM, detached": ("detached", _signal(signal.SIGTERM), Expected(None, None, None, None, "reconciling")),
    "SIGHUP": ("pipe", _signal(signal.SIGHUP), Expected(129, *OF_A_SIGNAL)),
    "the terminal is closed": ("terminal", _hang_up, Expected(129, *OF_A_SIGNAL)),
    "deadline": ("pipe with a limit", _nothing, Expected(4, "timeout", "timeout", "deadline", "timed_out")),
    "interrupt": ("pipe", _interrupt, Expected(3, "interrupt", "send", "other")),
    "its executor is dead": ("detached", _kill_and_cancel, Expected(None, "cancel", "command", "other")),
    "its executor is dead, a pipe": ("pipe", _kill_and_cancel, Expected(137, "cancel", "command", "other")),
    "the reader of its pipe goes": ("pipe", _stop_reading, Expected(0, None, None, None, "completed")),
}


def _begin(home: Home, how: str) -> Scene:
    session = home.new()
    sending = None
    if how == "detached":
        home.detach(session, "x")
    elif how == "terminal":
        sending = home.terminal("send", session, "x")
    else:
        sending = home.start("send", session, "x", *(["--timeout", "1s"] if "limit" in how else []))
    run = f"{session}/run-1"
    home.wait_for_event(run, "tool.started")
    return Scene(home, session, run, sending, home.executor(run))


@pytest.mark.parametrize("who", TABLE)
def test_who_stops_a_run(home: Home, until: Until, who: str) -> None:
    how, act, expected = TABLE[who]
    ready = home.path / "ready"
    # Two children, one of them in a session of its own.
    home.tool("work", f"setsid sleep 600 & sleep 600 & echo > {ready}.$$; {home.gate()}")
    home.model({"ifContains": "x", "calls": [{"name": "work"}]}, {"text": "a report"})
    neighbour = _begin(home, "detached")
    scene = _begin(home, how)
    until(lambda: len(list(home.path.glob("ready.*"))) == 2, "both tools being ready")
    act(scene)
    if scene.sending is not None:
        assert _code(scene) == expected.code
    home.wait_for_status(scene.run, expected.status)
    _event_says(scene, expected)
    if expected.status != "completed":
        assert home.marked(scene.session) == []
        assert home.events(scene.run, *OPERATION_ENDED)[0]["payload"]["status"] == "cancelled"
        assert home.status(neighbour.run) == "running"
    home.open_gate()
    home.wait_for_status(neighbour.run, "completed")
    assert home.events(neighbour.run, "run.cancel_requested") == []


def _code(scene: Scene) -> int:
    process = scene.sending.process
    if process.stdout is not None and process.stdout.closed:
        process.stdout = None
    ended = scene.sending.end()
    return int(ended if isinstance(ended, int) else ended.code)


def _event_says(scene: Scene, expected: Expected) -> None:
    asked = scene.home.events(scene.run, "run.cancel_requested")
    if expected.intent is None:
        assert asked == []
        return
    (event,) = asked
    payload = event["payload"]
    assert (payload["intent"], payload["via"]) == (expected.intent, expected.via)
    actor = payload["actor"]
    match expected.actor:
        case "executor":
            assert actor["pid"] == scene.executor
        case "deadline":
            assert actor["user"] == "deadline"
        case "owner":
            assert actor["pid"] is None
        case _:
            assert actor["pid"] not in (None, scene.executor)
    finished = scene.home.events(scene.run, "run.finished")
    assert [each["payload"]["terminalStatus"] for each in finished] == [expected.status]
    view = scene.home.view(scene.run)
    assert (view["status"], view["cancelRequestedAt"]) == (expected.status, event["at"])
    (ended,) = scene.home.events(scene.run, *OPERATION_ENDED)
    assert event["seq"] < ended["seq"] < finished[0]["seq"]
