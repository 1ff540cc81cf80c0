"""Only the command that a line names is made, and it is the same as among all of them."""

from typing import Any

import pytest
import typer

from agentrun.cli.app import app
from agentrun.cli.chosen import command_for

ALL: Any = command_for([])


def test_a_command_alone_is_what_it_is_among_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(ALL.commands) > 20
    for name in ALL.commands:
        group: Any = command_for([name, "--help"])
        assert list(group.commands) == [name]
        told = []
        for each in (group, ALL):
            assert each([name, "--help"], standalone_mode=False, prog_name="agentrun") == 0
            told.append(capsys.readouterr().out)
        assert told[0] == told[1] != ""


def test_the_list_of_all_commands_is_the_same_without_their_parsers(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for each in (command_for(["--help"]), ALL):
        assert each(["--help"], standalone_mode=False, prog_name="agentrun") == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert all(name in told[0] for name in ALL.commands)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["--version"], ["--", "ls"], ["sen"]], ids=" ".join)
def test_any_other_line_is_for_all_commands(words: list[str]) -> None:
    group: Any = command_for(words)
    everything: Any = typer.main.get_command(app)
    assert list(group.commands) == list(everything.commands)
