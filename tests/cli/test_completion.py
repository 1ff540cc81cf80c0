"""What a press of TAB offers: asked directly, and in real shells on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from agentrun.cli.app import app
from agentrun.cli.completing import complete
from agentrun.cli.words import COMMANDS
from agentrun.store.tree import Tree
from agentrun.testing import trees

Home = Any
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Two sessions, `session-aaa` with two runs, and a configuration with an agent."""
    tree = Tree(str(tmp_path / "root"))
    monkeypatch.setenv("AGENTRUN_ROOT", tree.root)
    monkeypatch.delenv("AGENTRUN_CONFIG", raising=False)
    tree.create_session(title="one that is\x1b[31m red\tand long", session_id="session-bbb")
    session = tree.create_session(title="last night", session_id="session-aaa")
    trees.completed(session, "first")
    executor = trees.Executor(session, trees.accept(session, "second").run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool("op-2", "write")
    Path(tree.root, "agentrun.toml").write_text('[agents.analyst]\nmodel = "openai:gpt-5"\n', encoding="utf-8")
    return tree


@pytest.fixture
def offered(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., list[str]]:
    """The words that a line offers; what stands behind a tab is left out."""

    def offer(*words: str) -> list[str]:
        assert complete(words) == 0
        kind, *lines = capfdbinary.readouterr().out.decode("utf-8").split("\n")[:-1]
        assert kind in ("words", "files")
        return [f"({kind})"] if kind == "files" else [line.split("\t")[0] for line in lines]

    return offer


OFFERS = [
    # commands and options
    (["sho"], ["show"]),
    (["re"], ["rename", "recover", "reconcile", "resume"]),
    (["--root", "R", "--json", "sho"], ["show"]),
    (["cancel", "--"], ["--reason", "--wait", "--timeout", "--force", "--gone", "--op", "--root", "--config",
                        "--account", "--json", "--no-color", "--help"]),
    (["send", "@last", "text", "--if-"], ["--if-busy", "--if-ended"]),
    (["send", "@last", "--mode", "s"], ["steer"]),
    (["send", "@last", "--mode=s"], ["--mode=steer"]),
    (["send", "@last", "--if-ended", ""], ["prompt"]),
    (["completion", ""], ["bash", "zsh", "fish"]),
    (["nonsense", ""], []),
    (["nonsense", "--ro"], ["--root"]),
    # files, which the shell knows
    (["send", "@last", "--file", "x"], ["(files)"]),
    (["send", "@last", "--file=x"], ["(files)"]),
    (["--root", ""], ["(files)"]),
    (["export", "@last", "-o", ""], ["(files)"]),
    # text of the user's own
    (["send", "@last", ""], []),
    (["new", ""], []),
    (["send", "@last", "--key", ""], []),
    # sessions
    (["show", ""], ["@last", "session-bbb", "session-aaa"]),
    (["show", "@"], ["@last"]),
    (["show", "session-a"], ["session-aaa"]),
    (["show", "bb"], ["bbb"]),
    (["show", "-f", "session-a"], ["session-aaa"]),
    (["show", "--", "session-a"], ["session-aaa"]),
    (["show", "--", "--f"], []),
    (["wait", "@last", "session-b"], ["session-bbb"]),
    (["rm", "session-a"], ["session-aaa"]),
    (["search", "word", "--session", "session-a"], ["session-aaa"]),
    (["show", "../"], []),
    # runs
    (["show", "session-aaa/"], ["session-aaa/run-2", "session-aaa/run-1"]),
    (["show", "aaa/run-1"], ["aaa/run-1"]),
    (["show", "@last/1"], ["@last/1"]),
    (["show", "session-bbb/"], []),
    (["show", "nothing/"], []),
    (["send", "aaa", "and?", "--ref", "run-"], ["run-2", "run-1"]),
    # operations, agents
    (["cancel", "aaa", "--op", ""], ["op-2"]),
    (["reconcile", "session-aaa/1", ""], []),
    (["new", "--agent", ""], ["local", "analyst"]),
    (["agents", ""], ["check"]),
    (["agents", "check", "a"], ["analyst"]),
]  # fmt: skip


def test_each_line_offers_what_fits(place: Tree, offered: Callable[..., list[str]]) -> None:
    wrong = {" ".join(words): (offered(*words), right) for words, right in OFFERS if offered(*words) != right}
    assert wrong == {}


def test_a_title_says_which_session_it_is_and_drives_no_terminal(
    place: Tree, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    complete(["show", "session-"])
    assert capfdbinary.readouterr().out.decode("utf-8").splitlines()[1:] == [
        "session-bbb\tone that is\\x1b[31m red and long",
        "session-aaa\tlast night",
    ]
    complete(["show", "aaa/"])
    assert b"run-2\trunning\naaa/run-1\tcompleted" in capfdbinary.readouterr().out


HOSTILE = ("\x1b[2J", "\u202e", "$(id)", "`id`", "; id", "a b", "'", "\nfiles", "\ud800")


def test_what_is_stored_is_offered_only_if_a_shell_takes_it_as_it_is(
    place: Tree, offered: Callable[..., list[str]], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It is put on the command line unquoted. # covers promise 15"""
    session = place.session("session-bbb")
    executor = trees.Executor(session, trees.accept(session).run_id)
    executor.deliver()
    for number, each in enumerate(HOSTILE):
        executor.start_tool(f"op-{number}{each}", "write")
    for each in ("op-fine", "--force", "-f", "=ls"):
        executor.start_tool(each, "write")
    lines = [f"[agents.{json.dumps(each)}]\nmodel = 'local'\n" for each in (*HOSTILE[:-1], "周报")]
    Path(place.root, "agentrun.toml").write_text("".join(lines), encoding="utf-8")
    assert offered("cancel", "bbb", "--op", "") == ["op-fine"]
    assert offered("reconcile", "bbb", "") == ["op-fine"]
    assert offered("new", "--agent", "") == ["local", "周报"]


def test_a_configuration_that_is_no_file_is_not_waited_for(place: Tree, offered: Callable[..., list[str]]) -> None:
    path = Path(place.root, "agentrun.toml")
    path.unlink()
    os.mkfifo(path)
    assert offered("new", "--agent", "") == ["local"]


def test_the_place_is_the_one_that_the_line_names(place: Tree, offered: Callable[..., list[str]]) -> None:
    elsewhere = f"{place.root}-2"
    assert offered("--root", elsewhere, "show", "s") == []
    assert offered("show", f"--root={elsewhere}", "s") == []
    Tree(elsewhere).create_session(session_id="session-ccc")
    assert offered("show", "--root", elsewhere, "s") == ["session-ccc"]
    assert offered("--account", "../..", "show", "s") == []


def test_what_cannot_be_read_is_left_out_in_silence(
    place: Tree, offered: Callable[..., list[str]], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    Path(place.path_of("session-aaa"), "runs", "run-1", "operations.jsonl").write_text("{\n")
    Path(place.path_of("session-aaa"), "runs", "run-1", "run.json").write_text("{")
    assert offered("show", "session-aaa/") == ["session-aaa/run-2", "session-aaa/run-1"]
    Path(place.path_of("session-aaa"), "session.json").write_text("{")
    Path(place.root, "agentrun.toml").write_text("[agents")
    assert offered("show", "session-") == ["session-bbb", "session-aaa"]
    assert offered("show", "session-aaa/") == []
    assert complete(["new", "--agent", ""]) == 0
    said = capfdbinary.readouterr()
    assert (said.out.split(b"\t")[0], said.err) == (b"words\nlocal", b"")


def test_every_command_and_every_option_is_known() -> None:
    commands: Any = typer.main.get_command(app)
    for name, command in commands.commands.items():
        options = {name for each in command.params if each.param_type_name == "option" for name in each.opts}
        assert set(COMMANDS[name].options) == options
    assert list(COMMANDS) == list(commands.commands)


def test_nothing_heavy_is_loaded(place: Tree) -> None:
    script = (
        "import sys; from agentrun.cli.command_line import run; run(['__complete', 'show', 's']);"
        "print({'typer', 'click', 'anyio', 'asyncio', 'rich', 'platformdirs', 'tomllib'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "session-aaa" in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"


# In real shells.


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """A shell that is here."""
    if not shutil.which(request.param):
        pytest.skip(f"there is no {request.param}: apt-get install {request.param}")
    return str(request.param)


@pytest.fixture
def path(home: Home) -> Iterator[Path]:
    """A home with `agentrun` on its path, and a session whose id is long."""
    programs = home.path / "bin"
    programs.mkdir()
    (programs / "agentrun").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentrun "$@"\n')
    (programs / "agentrun").chmod(0o755)
    home.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    Tree(str(home.root)).create_session(title="last night", session_id="session-night")
    return home.path


BEGIN = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit && compinit -u -D; "),
}
COMPLETED = [
    ("sho", "show "),
    ("show @l", "show @last "),
    ("show session-n", "show session-night "),
    ("show --mess", "show --messages "),
    ("send @last --mode=st", "send @last --mode=steer "),
    ("send @last --file agentrun.t", "send @last --file agentrun.toml "),
]


@pytest.mark.slow
def test_a_shell_completes_on_a_terminal(home: Home, path: Path, shell: str) -> None:
    if shell == "fish":
        return ask_fish(home, path)
    argv, begin = BEGIN[shell]
    terminal = home.on_terminal(argv, cwd=path)
    terminal.type(f"{begin}PS1='ready'; PS1=\"$PS1> \"; source <(agentrun completion {shell})\n")
    for typed, done in COMPLETED:
        terminal.wait_for("\nready>")
        # The mark is typed after the shell has completed, so it shows where the cursor is then.
        terminal.type(f"agentrun {typed}\t#")
        terminal.wait_for(f"agentrun {done}#")
        terminal.press_ctrl("u")
    return None


def ask_fish(home: Home, path: Path) -> None:
    """Fish can be asked without a terminal: that is what its `complete -C` is for."""
    asked = "".join(f'complete -C "agentrun {typed}"\n' for typed, _ in COMPLETED)
    argv = ["fish", "--no-config", "-c", f"agentrun completion fish | source\n{asked}"]
    done = subprocess.run(argv, env=home.env, cwd=path, capture_output=True, text=True, check=True)
    words = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert words == [done.split()[-1] for _, done in COMPLETED]
    assert done.stderr == ""


def test_another_shell_is_wrong_usage(home: Home) -> None:
    told = home.run("completion", "tcsh")
    assert told.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in told.said
    none = home.run("completion")
    assert (none.code, "Choose from: bash, zsh, fish\n" in none.said) == (2, True), none.said
