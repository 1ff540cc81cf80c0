"""Plays what can go wrong between an agent and a job that runs by itself: done, unknown, never twice.

    python3 play.py

The tree is made under `$AGENTRUN_ROOT`, or in a new temporary directory, and is kept. The service is real and runs on
this machine. Nothing here waits by the clock: what has to happen first is awaited. Exits 1 as soon as something is not
as told.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0  # seconds, on a machine that is very busy
DONE, NOT_OVER = 0, 6


class NotAsTold(Exception):
    """Something is not as the story says."""


def main() -> int:
    root = Path(os.environ.get("AGENTRUN_ROOT") or tempfile.mkdtemp(prefix="export-service-")).absolute()
    with tempfile.TemporaryDirectory(prefix="export-hold-") as directory:
        play = Play(root, Path(directory) / "hold")
        try:
            play.story()
        except NotAsTold as failure:
            print(f"\nplay: not as told: {failure}\n  the tree is in {root}", file=sys.stderr)
            return 1
        finally:
            play.end()
    return 0


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)


def expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise NotAsTold(what)


def awaited(look: Callable[[], T], what: str) -> T:
    """What `look` returns as soon as it is something."""
    until = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > until:
            raise NotAsTold(f"{what} did not come")
        time.sleep(0.05)
    return found


class Play:
    """The story: a service, and an agent that exports through it. `hold` keeps the service's jobs from ending."""

    def __init__(self, root: Path, hold: Path) -> None:
        self._root = root
        self._hold = hold
        argv = [sys.executable, str(HERE / "service.py"), "--port", "0", "--hold", str(hold), "--drop", "orders"]
        self._service = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._service.stdout is not None
        self._url = self._service.stdout.readline().strip()
        mine = {
            "AGENTRUN_ROOT": str(root),
            "AGENTRUN_CONFIG": str(HERE / "agentrun.toml"),
            "EXPORT_SERVICE": self._url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._environment = os.environ | mine
        self._detached: list[str] = []

    def story(self) -> None:
        self._a_lost_answer()
        run = self._nobody_sees_the_end()
        self._nobody_can_tell()
        self._stopped_in_time()
        self._count(run)

    def end(self) -> None:
        self._hold.unlink(missing_ok=True)
        self._service.send_signal(signal.SIGCONT)
        self._service.kill()
        self._service.wait()
        for run in self._detached:
            self._agentrun("cancel", run, quiet=True)

    # The scenes.

    def _a_lost_answer(self) -> None:
        say(
            "The service starts the export, and its answer is lost. The tool asks again, with the same key: it is the "
            "same job."
        )
        session = self._new("exports")
        self._agentrun("send", session, "export the orders", exits={DONE})
        expect(self._effects()["asked"] == ["orders"] * 2, "the service is asked twice")
        self._expect_effects(["orders"])

    def _nobody_sees_the_end(self) -> str:
        say("DONE. The executor is killed while the job runs. The job does not care.")
        self._hold.touch()
        run = self._begin("export the stock")
        self._kill_executor(run)
        self._agentrun("show", run)
        say("As long as the job runs, nobody can say how it ends: recover asks, and leaves the run as it is.")
        self._agentrun("recover", exits={NOT_OVER})
        expect(self._run(run)["status"] == "reconciling", "the run waits to be reconciled")
        say("The job ends by itself. Now recover learns that it is done, keeps its result, and the run goes on.")
        self._let_jobs_end("stock")
        self._agentrun("recover", exits={DONE})
        self._agentrun("wait", run, exits={DONE})
        self._agentrun("show", run, "--report")
        expect(len(self._events(run, "tool.started")) == 1, "the export is not started again")
        self._expect_effects(["orders", "stock"])
        return run

    def _nobody_can_tell(self) -> None:
        say("UNKNOWN. This time the service does not answer either: not to recover, and not to cancel.")
        self._hold.touch()
        run = self._begin("export the customers")
        self._kill_executor(run)
        self._service.send_signal(signal.SIGSTOP)
        self._agentrun("recover", exits={NOT_OVER})
        cancelled = self._agentrun("cancel", run, exits={DONE})
        expect("export-3" in cancelled, "cancel names the job that has to be looked after")
        self._service.send_signal(signal.SIGCONT)
        say("Until somebody has looked, no other export touches the service: it is skipped, and told who has it.")
        session = self._new("meanwhile")
        self._agentrun("send", session, "export the prices", exits={DONE})
        (skipped,) = self._events(f"{session}/run-1", "tool.finished")
        expect(skipped["status"] == "skipped" and run in skipped["error"], "the call is skipped and names the holder")
        say("The job ended after all, with nobody there. A person looks it up, and says so.")
        self._let_jobs_end("customers")
        self._agentrun("reconcile", run)
        self._agentrun("reconcile", run, "op-2", "--as", "succeeded", "--note", "it is in the list of exports")
        expect(self._run(run)["status"] == "cancelled", "the run stays cancelled: what was found out changes no end")
        self._expect_effects(["orders", "stock", "customers"])

    def _stopped_in_time(self) -> None:
        say("Stopped in time: cancel asks the service to stop the job, and nothing is left to look after.")
        self._hold.touch()
        run = self._begin("export the prices")
        self._agentrun("cancel", run, "--wait", "--reason", "the wrong table", exits={DONE})
        (found,) = self._events(run, "operation.reconciled")
        expect(found["status"] == "cancelled", f"the job is cancelled, not {found['status']}")
        self._hold.unlink()

    def _count(self, run: str) -> None:
        say("NEVER TWICE. What the service has really done:")
        print(json.dumps(self._effects()))
        self._expect_effects(["orders", "stock", "customers"])
        say(f"Look around: export AGENTRUN_ROOT={self._root}; agentrun show {run} --operations")

    # What the scenes are made of.

    def _begin(self, text: str) -> str:
        """A run in the background whose job is under way."""
        run = self._agentrun("send", self._new(text), text, "--detach", exits={DONE}).split()[0]
        self._detached.append(run)
        awaited(lambda: self._events(run, "tool.remote_id"), "the id of the job")
        return run

    def _kill_executor(self, run: str) -> None:
        pid = self._events(run, "run.lease_acquired")[-1]["owner"]["pid"]
        print(f"$ kill -9 {pid}")
        os.kill(pid, signal.SIGKILL)
        awaited(lambda: self._run(run)["executor"] == "lost", "the loss of the executor")

    def _let_jobs_end(self, name: str) -> None:
        self._hold.unlink()
        awaited(lambda: name in self._effects()["effects"], f"the export of the {name}")

    def _effects(self) -> dict[str, list[str]]:
        with urlopen(f"{self._url}/effects", timeout=PATIENCE) as answer:
            return dict(json.load(answer))

    def _expect_effects(self, wanted: list[str]) -> None:
        found = self._effects()["effects"]
        expect(found == wanted, f"the service has exported {wanted}, each once, not {found}")

    def _new(self, title: str) -> str:
        return self._agentrun("new", title, exits={DONE}).strip()

    def _run(self, run: str) -> dict[str, Any]:
        return dict(json.loads(self._agentrun("show", run, "--json", quiet=True))["run"])

    def _events(self, run: str, kind: str) -> list[dict[str, Any]]:
        session, _, run_id = run.partition("/")
        (path,) = self._root.glob(f"accounts/*/sessions/{session}/runs/{run_id}/operations.jsonl")
        lines = path.read_text("utf-8").split("\n")[:-1]
        return [event["payload"] for event in map(json.loads, lines) if event["type"] == kind]

    def _agentrun(self, *words: str, exits: set[int] | None = None, quiet: bool = False) -> str:
        """Runs a command in sight; what it printed, on either stream. Its stdout alone comes first."""
        if not quiet:
            print(f"$ agentrun {shlex.join(words)}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "agentrun", *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if not quiet:
            print((done.stdout + done.stderr).rstrip(), flush=True)
        if exits is not None and done.returncode not in exits:
            raise NotAsTold(f"agentrun {shlex.join(words)} ended with {done.returncode}, not {sorted(exits)}")
        return done.stdout if words[0] in ("new", "show") else done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
