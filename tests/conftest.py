"""What tests of several folders share: a tree, and crews of real processes that act at the same moment."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree

# pytest's importlib mode puts no folder of tests on the path.
sys.path.insert(0, str(Path(__file__).with_name("support")))

# A busy machine is no failure, and a test that passed passes again.
settings.register_profile("agentrun", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("agentrun")

# Whoever starts the tests in the background, or with nohup, has these ignored, and every process would inherit that:
# agentrun then rightly leaves them ignored, and the tests that send them would wait for nothing.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What every member of a crew runs: the work that the test gives, once for each line from the test.
MEMBER = """\
import json, sys
from agentrun.errors import AgentrunError
{setup}
def work(argument):
{body}
print("ready", flush=True)
for line in sys.stdin:
    try:
        result = {{"ok": work(json.loads(line))}}
    except AgentrunError as error:
        result = {{"error": type(error).__name__, "message": error.message, "run": error.run_id}}
    print(json.dumps(result), flush=True)
"""


class Crew:
    """Real processes, all ready and waiting; `all` lets them act at once and returns what each has to say."""

    def __init__(self, size: int, work: str, setup: str = "", **options: Any) -> None:
        body = "".join(f"    {line}\n" for line in work.strip().splitlines())
        argv = [sys.executable, "-c", MEMBER.format(setup=setup, body=body)]
        self.members = [
            subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
            for _ in range(size)
        ]
        for member in self.members:
            assert self._line(member) == "ready\n"

    def all(self, argument: Any = None) -> list[dict[str, Any]]:
        """Every member does its work once; their results, in the order of the members."""
        self.begin(argument)
        return self.results()

    def begin(self, argument: Any = None) -> None:
        """Every member begins its work."""
        for number, member in enumerate(self.members):
            assert member.stdin is not None
            member.stdin.write(json.dumps(number if argument is None else argument) + "\n")
            member.stdin.flush()

    def results(self) -> list[dict[str, Any]]:
        """Waits for the work that was begun."""
        return [json.loads(self._line(member)) for member in self.members]

    def dismiss(self) -> None:
        """Ends all of them."""
        for member in self.members:
            member.kill()
            member.wait()
            assert member.stdin is not None
            assert member.stdout is not None
            with suppress(BrokenPipeError):
                member.stdin.close()
            member.stdout.close()

    @staticmethod
    def _line(member: subprocess.Popen[str]) -> str:
        assert member.stdout is not None
        return member.stdout.readline()


@pytest.fixture
def crew() -> Iterator[Callable[..., Crew]]:
    """Makes crews that are gone after the test."""
    crews: list[Crew] = []

    def make(size: int, work: str, setup: str = "", **options: Any) -> Crew:
        crews.append(Crew(size, work, setup, **options))
        return crews[-1]

    yield make
    for each in crews:
        each.dismiss()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """The tree of an account that has stored nothing yet."""
    return Tree(str(tmp_path / "root"), "ann")


@pytest.fixture
def session(tree: Tree) -> SessionDir:
    """A new session, `s1`."""
    return tree.create_session(title="Test", session_id="s1")
