"""What `make mutants` breaks is still there: a breakage that finds no line to break shows nothing."""

from __future__ import annotations

import runpy
from pathlib import Path

PLANTED = runpy.run_path(str(Path(__file__).with_name("mutants.py")))


def test_each_breakage_finds_its_line_exactly_once() -> None:
    package = PLANTED["PROJECT"] / "agentrun"
    found = {each.name: (package / each.file).read_text("utf-8").count(each.old) for each in PLANTED["MUTANTS"]}
    assert {name: count for name, count in found.items() if count != 1} == {}
    assert len(found) == len(PLANTED["MUTANTS"]), "two have the same name"


def test_each_breakage_names_tests_that_are_there() -> None:
    project = PLANTED["PROJECT"]
    words = [(each.name, word) for each in PLANTED["MUTANTS"] for word in each.tests.split()]
    files = [(name, word.partition("::")[0]) for name, word in words if word.startswith("tests/")]
    assert [each for each in files if not (project / each[1]).exists()] == []
