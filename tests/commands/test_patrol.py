"""How often a patrol that stays looks at a run that it has to leave as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrun.commands.patrol import FIRST_PAUSE, Patrol
from agentrun.commands.place import Place
from agentrun.store.inbox import Order
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor

CONFIG = """\
[agents.analyst]
model = "scripted:script.json"
tools = ["export"]

[tools.export]
argv = ["true"]
effect = "write"
probe = ["sh", "-c", "echo asked >>asked; exit 1"]
"""


# covers A60 A63
def test_a_system_outside_that_answers_slowly_is_asked_no_more_often(
    tree: Tree, session: SessionDir, tmp_path: Path
) -> None:
    """Its answer takes longer than the pause, which begins with it: the clock moves with each time that it is asked."""
    path, asked = tmp_path / "agentrun.toml", tmp_path / "asked"
    path.write_text(CONFIG)
    order = Order(agent="analyst", config={"path": str(path), "sha256": "0" * 64})
    executor = Executor(session, trees.accept(session, order=order).run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool()
    executor.die()

    def answers() -> int:
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    looks = iter([False, True])
    patrol = Patrol(Place(tree, str(path), dict(os.environ)), pytest.fail, lambda: 2 * FIRST_PAUSE * answers())
    assert [each.what for each in patrol.watch(lambda _: next(looks))] == ["left"]
    assert answers() == 1
