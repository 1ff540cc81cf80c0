"""What `--help` and the manual page say: every command with an example, every option with its unit and default."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from agentrun.cli.app import app
from agentrun.errors import EXIT_CODES, exit_table

Home = Any
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "agentrun.1"
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OPTIONS = [
    (name, option)
    for name, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option"
]
# Without these nothing is added, asked or expected: there is no default to name.
WITHOUT_DEFAULT = {
    "--id", "--send", "--file", "--key", "--expect-seq", "--ref", "--attach", "--expect-revision", "--note", "--op",
    "--as", "--html",
}  # fmt: skip
DURATIONS = ("10m", "30s")


def test_every_command_has_a_summary_and_an_example() -> None:
    lacking = []
    for name, command in COMMANDS.items():
        examples = [line for block in re.findall(r"\x08\n(.*?)(?:\n\n|$)", command.help, re.DOTALL) for line in
                    block.split("\n") if re.search(rf"\bagentrun {name}\b", line)]  # fmt: skip
        if not examples or not command.get_short_help_str(1000).endswith((".", "!")):
            lacking.append(name)
    assert lacking == []


def test_a_usage_line_is_plain_and_the_one_of_the_manual_page(home: Home) -> None:
    manual = PAGE.read_text("utf-8").replace("\\-", "-")
    for name, (code, text) in zip(COMMANDS, home.drive([[each, "--help"] for each in COMMANDS]), strict=True):
        assert code == 0
        usage = re.search(r"Usage: (.*?)\r\n\r\n", text, re.DOTALL)
        assert usage, name
        words = " ".join(usage[1].replace("[OPTIONS]", "").split())
        assert f'.SS "{words}"' in manual


def test_every_argument_and_option_is_explained() -> None:
    silent = [f"{name} {each.name}" for name, command in COMMANDS.items() for each in command.params if not each.help]
    assert silent == []


def test_every_option_says_its_default_and_its_unit() -> None:
    for name, option in OPTIONS:
        takes_value = not option.is_flag
        says = "default" in option.help or option.default not in (None, "")
        if takes_value and not set(option.opts) & WITHOUT_DEFAULT:
            assert says, f"{name} {option.opts[0]}: what holds without it?"
        if option.metavar in DURATIONS:
            assert "30s, 10m, 2h" in option.help, f"{name} {option.opts[0]}: in what unit?"


def test_no_summary_is_cut_in_a_pipe_nor_on_a_narrow_terminal(home: Home) -> None:
    piped = home.run("--help").text
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.get_short_help_str(1000))}$", piped, re.MULTILINE), name
    assert "..." not in piped.partition("Commands:")[2]
    for code, word, meaning in exit_table():
        wrapped = r"\s+".join(map(re.escape, meaning.split()))
        assert re.search(rf"^ +{code} +{word} +{wrapped}$", piped, re.MULTILINE), code
    assert max(map(len, piped.splitlines())) <= 100
    terminal = home.terminal("--help", columns=60)
    assert terminal.end() == 0
    shown = " ".join(terminal.text.partition("Commands:")[2].split())
    assert all(" ".join(each.get_short_help_str(1000).split()) in shown for each in COMMANDS.values())


# The manual page.


def rendered() -> str:
    for argv in (["mandoc", "-T", "utf8"], ["man", "-l", "-P", "cat"], ["groff", "-man", "-T", "utf8"]):
        if shutil.which(argv[0]):
            done = subprocess.run([*argv, str(PAGE)], capture_output=True, check=True, env={"MANWIDTH": "200", "LANG":
                                  "C.UTF-8", "PATH": "/usr/bin:/bin"})  # fmt: skip
            assert done.stderr == b""
            return re.sub(r".\x08|\x1b\[[\d;]*m", "", done.stdout.decode("utf-8"))
    pytest.skip("nothing here shows manual pages: apt-get install mandoc")


@pytest.mark.slow
def test_the_manual_page_has_what_the_help_has() -> None:
    # Hyphens of the page are minus signs or hyphens, as its reader likes them best.
    text = " ".join(re.sub("[\u2010\u2212]", "-", rendered()).split())
    for name, command in COMMANDS.items():
        assert f"agentrun {name} " in text
        assert " ".join(command.get_short_help_str(1000).split()) in text, name
    for _, option in OPTIONS:
        assert all(each in text for each in option.opts)
    for code, word, meaning in exit_table():
        assert f"{code} {word} {meaning}".replace("  ", " ") in text, code
    assert len(exit_table()) == len(EXIT_CODES) + 2


def test_the_manual_page_is_installed_where_man_looks() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["shared-data"] == {"docs/agentrun.1": "share/man/man1/agentrun.1"}
    assert PAGE.is_file()


@pytest.mark.skipif(not shutil.which("mandoc"), reason="needs mandoc: apt-get install mandoc")
def test_the_manual_page_is_well_formed() -> None:
    linted = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "error", str(PAGE)], capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout) == (0, "")
