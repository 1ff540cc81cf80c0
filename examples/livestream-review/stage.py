"""The stage of `play.py`: terminals to type in, a watcher that waits for events, and a run as it is recorded.

Everything goes through the command line, as it would for a user or a script. Nothing of agentrun is imported.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

PATIENCE_SECONDS = 60.0  # for one command or one event; generous, because a busy machine is no failure
WATCH_AGAIN_SECONDS = 0.1

# Exit codes of agentrun.
DONE, CANCELLED, WAITING_INPUT, NOT_OVER, NOT_FOUND = 0, 3, 5, 6, 8

Event = dict[str, Any]


class NotAsTold(Exception):
    """Something is not as the story tells it."""


def expect(fact: bool, told: str) -> None:
    if not fact:
        raise NotAsTold(f"expected that {told}")


def agentrun() -> list[str]:
    """The command that belongs to this Python, else the module."""
    beside = Path(sys.executable).with_name("agentrun")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "agentrun"]


def environment_for(root: Path, config: Path, busy_file: Path) -> dict[str, str]:
    """This process's environment with the tree, the configuration, and this Python first on the path."""
    return {
        **os.environ,
        "AGENTRUN_ROOT": str(root),
        "AGENTRUN_CONFIG": str(config),
        "LIVESTREAM_BUSY": str(busy_file),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


def as_typed(arguments: Collection[str]) -> str:
    return " ".join(["agentrun", *(_quoted(argument) for argument in arguments)])


def _quoted(argument: str) -> str:
    plain = re.fullmatch(r"[\w@%+=:,./-]+", argument)
    return argument if plain else '"' + re.sub(r'(["\\$`])', r"\\\1", argument) + '"'


class Output(NamedTuple):
    code: int
    stdout: str
    stderr: str


class Terminal:
    """Types commands as a user would, and shows what they print."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._environment = environment
        self._commands: list[Command] = []

    def run(self, *arguments: str, exits: Collection[int] = (DONE,)) -> Output:
        """Types a command, waits for its end and shows its output. Another exit code raises `NotAsTold`."""
        return self._type(arguments).show_end(exits)

    def start(self, *arguments: str) -> Command:
        """Types a command and leaves it running, while something happens in the other terminal."""
        return self._type(arguments)

    def finish(self, command: Command, exits: Collection[int] = (DONE,)) -> Output:
        """Waits for the end of what `start` began, and then as `run`."""
        command.wait()
        print(f"\n{self.name}, where `{as_typed(command.arguments[:1])}` has ended:")
        return command.show_end(exits)

    def end_what_still_runs(self) -> None:
        for command in self._commands:
            command.end()

    def _type(self, arguments: tuple[str, ...]) -> Command:
        print(f"\n{self.name} $ {as_typed(arguments)}")
        command = Command(arguments, self._environment)
        self._commands.append(command)
        return command


class Command:
    """One running command. Its output goes to files, so that no full pipe can stop it."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.arguments = arguments
        self._stdout = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*agentrun(), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=self._stderr,
        )

    def wait(self) -> int:
        try:
            return self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            late = f"`{as_typed(self.arguments)}` is not over after {PATIENCE_SECONDS:.0f} s"
            raise NotAsTold(late) from None

    def show_end(self, exits: Collection[int]) -> Output:
        output = Output(self.wait(), _written(self._stdout), _written(self._stderr))
        for text in (output.stderr, output.stdout):
            if text.strip():
                print(text.rstrip("\n"))
        if output.code != DONE:
            print(f"(exit {output.code})")
        wanted = " or ".join(str(code) for code in exits)
        typed = as_typed(self.arguments)
        expect(output.code in exits, f"`{typed}` ends with exit {wanted}, not {output.code}")
        return output

    def end(self) -> None:
        """Ends what the story did not bring to its end. SIGTERM lets a run wind down."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._stdout.close()
        self._stderr.close()


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


class Watcher:
    """Looks at runs from outside, through `show --json`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def show(self, name: str) -> dict[str, Any]:
        """The document of a session or a run, with all its events."""
        command = [*agentrun(), "show", name, "--json", "--tail", "1000"]
        shown = subprocess.run(
            command,
            check=False,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
        if shown.returncode != DONE:
            raise NotAsTold(f"`show {name}` ended with exit {shown.returncode}: {shown.stderr.decode()}")
        document: dict[str, Any] = json.loads(shown.stdout)
        return document

    def until(self, run: str, happened: Callable[[list[Event]], bool], told: str) -> list[Event]:
        """Follows a run until `happened` is true of its events so far, and returns these.

        A follower leaves when the run waits for its user, and cannot begin before the run exists. Both may be
        so while another terminal's command is only starting; then it is sent again.
        """
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            events, code = self._follow(run, happened, give_up)
            if happened(events):
                return events
            if code not in {WAITING_INPUT, NOT_OVER, NOT_FOUND}:
                raise NotAsTold(f"{run} ended (exit {code}) before {told}")
            time.sleep(WATCH_AGAIN_SECONDS)
        raise NotAsTold(f"not within {PATIENCE_SECONDS:.0f} s: {told}")

    def _follow(self, run: str, happened: Callable[[list[Event]], bool], give_up: float) -> tuple[list[Event], int]:
        command = [*agentrun(), "show", run, "-f", "--json", "--since", "0"]
        events: list[Event] = []
        with subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as follower:
            assert follower.stdout is not None
            alarm = threading.Timer(max(0.0, give_up - time.monotonic()), follower.kill)
            alarm.start()
            for line in follower.stdout:
                events.append(json.loads(line))
                if happened(events):
                    follower.terminate()
                    break
            code = follower.wait()
            alarm.cancel()
        return events, code


class RecordedRun:
    """What `show SESSION/RUN --json` says about a run."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.snapshot: Mapping[str, Any] = document["run"]
        self.events: list[Event] = document["operations"]

    @property
    def status(self) -> str:
        return str(self.snapshot["status"])

    def tools_of_first_turn(self) -> set[str]:
        calls = payloads(self.events, "tool.registered")
        return {call["toolName"] for call in calls if call["turnId"] == calls[0]["turnId"]}

    def retried_tools(self) -> list[str]:
        starts = [call["operationId"] for call in payloads(self.events, "tool.started")]
        calls = payloads(self.events, "tool.registered")
        return [call["toolName"] for call in calls if starts.count(call["operationId"]) > 1]

    def unsuccessful_tools(self) -> list[str]:
        """The tools of operations whose last word is not success."""
        last = {call["operationId"]: call["status"] for call in payloads(self.events, "tool.finished")}
        calls = payloads(self.events, "tool.registered")
        return [call["toolName"] for call in calls if last.get(call["operationId"]) != "succeeded"]

    def operation_of(self, tool: str) -> str:
        calls = payloads(self.events, "tool.registered")
        return str(next(call["operationId"] for call in calls if call["toolName"] == tool))

    def modes_delivered(self) -> list[str]:
        return [delivery["mode"] for delivery in payloads(self.events, "input.delivered")]

    def around_steer(self) -> list[str]:
        """The types of the telling events right before and right after the delivery of the steer."""
        telling = {"tool.registered", "tool.finished", "model.request.started", "input.delivered"}
        events = [event for event in self.events if event["type"] in telling]
        steer = next(i for i, event in enumerate(events) if event["payload"].get("mode") == "steer")
        return [event["type"] for event in events[steer - 1 : steer + 2] if event is not events[steer]]


def payloads(events: list[Event], kind: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in events if event["type"] == kind]
