"""Only the command that a line names is made, and it is the same as among all of them."""

from typing import Any

import pytest
import typer

from agentrun.cli.app import app
from agentrun.cli.chosen import command_for

ALL: Any = typer.main.get_command(app)


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


@pytest.mark.parametrize("words", [[], ["--help"], ["nonsense"], ["--version"], ["--", "ls"], ["sen"]], ids=" ".join)
def test_any_other_line_is_for_all_commands(words: list[str]) -> None:
    group: Any = command_for(words)
    assert list(group.commands) == list(ALL.commands)
