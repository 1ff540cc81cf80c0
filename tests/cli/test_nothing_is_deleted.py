"""Nothing is deleted unasked: not what is old, not what was left behind, not what looks like nobody's.

# covers A66; promise 18; case C16 C27
"""

from __future__ import annotations

import getpass
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agentrun.store.tree import Tree
from agentrun.testing import trees

Home = Any

pytestmark = pytest.mark.slow

# Every command but `rm`, on sessions that ended long ago. What goes on in a run begins in one of its own.
COMMANDS = """
ls | ls --archived | show old | show old/1 | show old/1 --operations | show old --messages | show old/1 --report
show old/2 --timeline | show -f old/1 | wait old/1 | search go | check | recover --dry-run | recover | agents | config
export old | export --all --output all.tar | import all.tar --as again | show @last | cancel old
approve old | deny old
reconcile old/2 | rename old another | archive old | unarchive old | fork old | send old more | steer old more
send old again --key k1 | resume old | compact old | new fresh | cancel open | send open more
check --repair | check old --repair | ls
"""
LEFT = (
    "messages.jsonl.torn-7", ".new-session.json", "session.json.damaged-0", "notes.txt", "runs/run-1/.new-run.json",
    "runs/run-1/operations.jsonl.torn-9", "runs/run-1/scratch/made", "stale/run-1.generation-9.jsonl",
    "../.new-session-x", "../.new-import-1-1", "../lost+found", "../../shared", "../../resources",
)  # fmt: skip


def _old_tree(home: Home) -> None:
    tree = Tree(str(home.root), getpass.getuser())
    old = tree.create_session(title="old", session_id="old")
    trees.whole_life(old)
    waits = tree.create_session(title="open", session_id="open")
    executor = trees.Executor(waits, trees.accept(waits).run_id)
    executor.ask()
    executor.die()
    for name in LEFT:
        path = Path(old.directory.path, name)
        if path.suffix or path.name == "made":
            path.parent.mkdir(0o700, exist_ok=True)
            path.write_text("left over")
        else:
            path.mkdir(0o700, exist_ok=True)
    two_years_ago = time.time() - 2 * 365 * 86400
    for path in [home.root, *home.root.rglob("*")]:
        os.utime(path, (two_years_ago, two_years_ago), follow_symlinks=False)


def test_however_old_it_is_and_whatever_is_done(home: Home) -> None:
    _old_tree(home)
    there = set(trees.fingerprint(home.root))
    argvs = [line.split() for line in COMMANDS.strip().replace("\n", " | ").split(" | ")]
    for argv, (code, text) in zip(argvs, home.drive(argvs), strict=True):
        assert code not in (70, 10) or argv[0] == "check", (argv, code, text)
    gone = there - set(trees.fingerprint(home.root))
    # The slot and the lease of the run that was cancelled; what a writer and an import that died left unfinished makes
    # room for those of the next ones.
    account = home.sessions.parent.relative_to(home.root)
    ended = {f"{account}/sessions/open/{name}" for name in ("active", "runs/run-1/lease.json")}
    assert gone <= ended | {f"{account}/sessions/{name}" for name in ("old/.new-session.json", ".new-import-1-1")}
    # And when that is asked for, it goes with all that lies beside it, and nothing else does.
    before = set(trees.fingerprint(home.root))
    assert home.run("rm", "old", "--yes", "--force").code == 0
    gone = before - set(trees.fingerprint(home.root))
    assert gone == {name for name in before if f"{name}/".startswith(f"{account}/sessions/old/")}


READING = (
    ["ls"], ["ls", "--json"], ["show", "s"], ["show", "s/1"], ["show", "s", "--messages"], ["show", "s/1", "--report"],
    ["show", "s/1", "--operations"], ["show", "@last"], ["show", "s", "--timeline"], ["search", "go"], ["export", "s"],
    ["check"], ["recover", "--dry-run"],
)  # fmt: skip


def test_opening_and_leaving_changes_no_byte(home: Home) -> None:
    """Five times, of a run that is over and of one that waits for an answer."""
    tree = Tree(str(home.root), getpass.getuser())
    trees.whole_life(tree.create_session(title="s", session_id="s"))
    home.model({"ask": "which?"})
    waits = home.new("waits")
    assert home.run("send", waits, "hello").code == 5
    before = trees.fingerprint(home.root)
    for _ in range(5):
        for (code, text), argv in zip(home.drive(READING), READING, strict=True):
            assert code in (0, 6), (argv, text)
        viewer = home.terminal("show", "-f", waits)
        viewer.wait_for("which?")
        viewer.press_ctrl("c")
        assert viewer.end() in (0, 5, 130)
        assert trees.fingerprint(home.root) == before
