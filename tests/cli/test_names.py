"""What a name on the command line means: the same for every command that takes one."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from agentrun.store.tree import Tree
from agentrun.testing import trees

Home = Any

pytestmark = pytest.mark.slow

# % is the name. Each of these takes a session, or a run of one.
TABLE = """
show % | show % --messages | show % --operations | show % --report | show % --timeline | show % --html x.html
show % -f | wait % | send % x --detach | steer % x | approve % | deny % | cancel % | cancel % --op op-1
resume % --detach | reconcile % | reconcile % op-1 --as failed | compact % --detach | rename % x | archive %
unarchive % | fork % | rm % --yes | export % | check % | search x --session %
"""


def commands(name: str) -> list[list[str]]:
    lines = TABLE.strip().replace("\n", " | ").split(" | ")
    return [line.replace("%", name).split() for line in lines]


@pytest.fixture
def tree(home: Home) -> Tree:
    tree = Tree(str(home.root), getpass.getuser())
    for name in ("week-12-sales", "week-12-stock", "week-13"):
        trees.completed(tree.create_session(title=name, session_id=name))
    return tree


def test_a_name_that_can_mean_several_is_answered_with_all_of_them(home: Home, tree: Tree) -> None:
    # case C16
    before = trees.fingerprint(home.root)
    argvs = commands("week-12")
    for argv, (code, text) in zip(argvs, home.drive(argvs), strict=True):
        assert code == 8, (argv, text)
        assert text.split("\r\n")[1:3] == ["  week-12-sales", "  week-12-stock"], (argv, text)
    assert trees.fingerprint(home.root) == before
    refused = home.run("cancel", "week-12", "--json")
    assert refused.error["candidates"] == ["week-12-sales", "week-12-stock"]


def test_a_name_that_means_nothing_says_where_to_look(home: Home, tree: Tree) -> None:
    before = trees.fingerprint(home.root)
    argvs = commands("month-1")
    for argv, (code, text) in zip(argvs, home.drive(argvs), strict=True):
        assert (code, "agentrun ls" in text) == (8, True), (argv, text)
    assert trees.fingerprint(home.root) == before


@pytest.mark.parametrize("name", ["@last", "week-13", "week-13/1", "13/run-1", "@last/1"])
def test_every_form_of_a_name_is_understood_everywhere(home: Home, tree: Tree, name: str) -> None:
    argvs = [argv for argv in commands(name) if argv[0] not in ("rm", "approve", "deny", "send", "compact", "resume")]
    for argv, (code, text) in zip(argvs, home.drive(argvs), strict=True):
        if "/" in name and argv[0] in ("archive", "unarchive", "rename", "fork", "search", "check"):
            # These are about a session as a whole, and say so instead of passing the run over.
            assert code == 2, (argv, text)
            assert "week-13" in text
        else:
            assert code in (0, 7) or "--op" in argv or "op-1" in argv, (argv, code, text)
            assert "week-12" not in text


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["wait", "week-13", "--timeout", "5"], 2, "seconds are written 5s, minutes 5m"),
        (["new", "--id", "b/d"], 9, "this is one: b-d"),
        (["show", "week 13"], 9, "this is one: week-13"),
        (["show", "week 14"], 9, "agentrun ls"),
        (["show", "@first"], 9, "agentrun ls"),
        (["wait", ""], 9, "agentrun ls"),
        (["show", "13/run-1/op-1"], 9, "agentrun show week-13"),
        (["show", "week-13/"], 9, "agentrun show week-13"),
        (["import", "no.tar"], 8, "see what is there: ls ."),
        (["import", "no/where/a b.tar"], 8, "see what is there: ls ."),
        (["export", "week-13", "-o", "no/where/x.md"], 8, "make its directory: mkdir -p no/where"),
        (["export", "week-13", "-o", "agentrun.toml/x.md"], 9, "see what it is: ls -ld agentrun.toml"),
        (["show", "week-13", "--html", "agentrun.toml/y/x.html"], 9, "see what it is: ls -ld agentrun.toml"),
        (["import", "agentrun.toml/x.tar"], 8, "see what is there: ls ."),
        (["send", "week-13", "x", "--attach", "no.md"], 2, "see: agentrun send --help"),
        (["send", "week-13", "--file", "no.md"], 2, "see: agentrun send --help"),
        (["send", "week-13", "x", "--mode", "shout"], 2, "see: agentrun send --help"),
        (["show", "week-13", "--messages", "--since", "-4"], 2, "see: agentrun show --help"),
        (["shwo"], 2, "see: agentrun --help"),
        (["agents", "--config", "no.toml"], 13, "docs/agents.md"),
        (["search", "x", "--session", "week-13/1"], 2, "take it whole: week-13"),
    ],
)
def test_an_error_says_what_to_type_next(arguments: list[str], code: int, hint: str, home: Home, tree: Tree) -> None:
    refused = home.run(*arguments, "--json", cwd=home.path)
    assert refused.code == code
    assert hint in refused.error["hint"]


def test_an_empty_name_is_not_as_good_as_none(home: Home, tree: Tree) -> None:
    """It is a variable that is not set: the whole run must not be cancelled for it, nor a question be swallowed."""
    before = trees.fingerprint(home.root)
    empty = """
    send week-13 x --key= | steer week-13 x --key= | send week-13 x --agent= | send week-13 x --ref= | new x --id=
    send week-13 x --mode= | cancel week-13 --op= | approve week-13 % | deny week-13 % | check % | export %
    reconcile week-13/1 % | export week-13 --output= | show week-13 --html= | import % | import x --as= | ls --agent=
    agents % | compact week-13 --agent= | send week-13 x --attach= | send week-13 x --file=
    """
    argvs = [[word.replace("%", "") for word in line.split()] for line in empty.replace("\n", " | ").split(" | ")]
    argvs = [argv for argv in argvs if argv]
    for argv, (code, text) in zip(argvs, home.drive(argvs), strict=True):
        assert (code, "is empty" in text) == (2, True), (argv, code, text)
    assert trees.fingerprint(home.root) == before
    # A text may be empty where it is one.
    assert home.run("ls", "").code == home.run("rename", "week-13", "").code == 0
