"""Sessions and runs from Python, beside the command line and on the same tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

import agentrun
from agentrun import Exchange, OpenTree, Said, Stretch, Turns, api
from agentrun.states import RunStatus
from tests.cli.conftest import until

pytestmark = pytest.mark.slow

PATIENCE = 60.0


class Own:
    """An agent of the test's own: it asks at the word `ask`, waits at the word `wait`, else repeats what it hears."""

    async def run(self, stretch: Stretch) -> None:
        await Turns(stretch, "own", self.turn, repeatable=True).run()

    async def turn(self, exchange: Exchange) -> Said:
        told = agentrun.prompt_text(exchange.stretch, exchange.transcript, remembers=True)
        await exchange.say(f"heard: {told}")
        if told == "wait":
            await anyio.sleep_forever()
        return Said("", question="Which?") if told == "ask" else Said(exchange.text)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenTree:
    for name in ("AGENTRUN_ROOT", "AGENTRUN_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    turns = [
        {"ifContains": "slow", "text": "one two three " * 200, "delayMs": 50},
        {"ifContains": "ask", "ask": "Which month?"},
        {"text": "# Done\n"},
    ]
    (tmp_path / "script.json").write_text(json.dumps({"turns": turns}))
    (tmp_path / "agentrun.toml").write_text('[agents.a]\nmodel = "scripted:script.json"\n')
    return agentrun.open_tree(str(tmp_path), config=str(tmp_path / "agentrun.toml"))


def test_a_run_is_begun_followed_and_read(tree: OpenTree) -> None:
    session = tree.new("a title", session_id="s")
    run = session.start("hello", key="k")
    types = [news.type for news in run.follow() if isinstance(news, agentrun.Event)]
    assert (types[0], types[-1]) == ("run.accepted", "run.finished")
    assert run.wait(PATIENCE).status is RunStatus.COMPLETED
    assert run.report() == "# Done\n"
    assert [(message.role, message.text) for message in session.messages()] == [
        ("user", "hello"),
        ("assistant", "# Done\n"),
    ]
    assert session.start("hello", key="k").name == run.name == "s/run-1"
    assert tree.session("s").run("1").view().run.agent == "a"
    assert [each.title for each in tree.sessions()] == ["a title"]


def test_a_run_is_steered_and_cancelled(tree: OpenTree) -> None:
    run = tree.new(session_id="s").start("slow")
    until(run.draft, "the draft")
    assert run.steer("faster") == 2
    with pytest.raises(agentrun.TimeRanOut):
        run.wait(0.01)
    run.cancel("enough")
    assert run.wait(PATIENCE).status is RunStatus.CANCELLED
    with pytest.raises(agentrun.Conflict):
        run.steer("too late")


def test_a_question_is_answered(tree: OpenTree) -> None:
    run = tree.new(session_id="s").start("ask")
    view = run.wait(PATIENCE)
    assert (view.run.waiting_for or {})["text"] == "Which month?"
    run.answer("May")
    assert run.wait(PATIENCE).status is RunStatus.COMPLETED


def test_an_agent_of_ones_own_is_driven_here(tree: OpenTree) -> None:
    session = tree.new(session_id="s")
    run = session.execute("hello", Own())
    assert run.report() == "heard: hello"
    assert run.view().run.agent == "python:" + f"{Own.__module__}.Own"
    waiting = session.execute("ask", Own())
    assert waiting.view().status is RunStatus.WAITING_INPUT
    with pytest.raises(agentrun.ConfigError):
        waiting.answer("May")  # no other process could go on with it
    waiting.cancel()
    assert waiting.wait(PATIENCE).status is RunStatus.CANCELLED


def test_it_can_be_cancelled_from_elsewhere(tree: OpenTree) -> None:
    session = tree.new(session_id="s")

    def stop() -> None:
        other = agentrun.open_tree(tree.root).session("s")
        until(lambda: other.directory.newest_run_ids(1) and other.run().draft(), "the draft", PATIENCE)
        other.run().cancel()

    thread = threading.Thread(target=stop)
    thread.start()
    run = session.execute("wait", Own())
    thread.join()
    assert run.view().status is RunStatus.CANCELLED


def test_what_the_agent_began_is_ended_when_its_run_has_to_be_left(tree: OpenTree) -> None:
    session = tree.new(session_id="s")
    begun: list[subprocess.Popen[bytes]] = []

    def begin(environment: dict[str, str]) -> None:
        begun.append(subprocess.Popen(["sleep", "300"], env=environment, start_new_session=True))

    class Leaving:
        """Begins a process for the run and one of the program's own; then its run cannot be recorded any more."""

        async def run(self, stretch: agentrun.Stretch) -> None:
            run_dir = session.run().target.run()
            place = tree.place.tree
            marked = {"ROOT": place.root, "ACCOUNT": place.account, "SESSION": "s", "RUN": run_dir.run_id}
            for variables in ({f"AGENTRUN_{name}": value for name, value in marked.items()}, {}):
                begin(os.environ | variables)
            shutil.rmtree(run_dir.directory.path)
            await anyio.sleep_forever()

    try:
        with pytest.raises(agentrun.AgentrunError, match="was removed while"):
            session.execute("go", Leaving())
        for_the_run, own = begun
        assert for_the_run.wait(PATIENCE) < 0
        assert own.poll() is None
    finally:
        for process in begun:
            process.kill()
            process.wait()


def test_driving_needs_the_thread_that_gets_signals(tree: OpenTree) -> None:
    session = tree.new(session_id="s")
    failures: list[BaseException] = []

    def execute() -> None:
        try:
            session.execute("hello", Own())
        except agentrun.UsageError as error:
            failures.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    thread.join()
    assert len(failures) == 1
    assert session.messages() == []


def test_what_there_is_is_named_and_nothing_else() -> None:
    assert sorted({*agentrun.__all__} - {"__version__"}) == sorted(api.__all__)
    for name in agentrun.__all__:
        assert getattr(agentrun, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        agentrun.no_such_name  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute '_private'"):
        agentrun._private  # noqa: B018


def test_importing_it_costs_nothing() -> None:
    program = "import agentrun, sys; print('agentrun.api' in sys.modules, 'anyio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
