"""An agent within the executor's own process that forks, as `multiprocessing` does: the child is no executor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.store.locks import is_executor_alive
from agentrun.store.tree import Tree

pytestmark = pytest.mark.slow  # it starts a Python of its own

FORKS = """
import os, sys, time
from agentrun.store.tree import Tree
from tests.executor.conftest import drive

class Agent:
    async def run(self, stretch):
        pid = os.fork()
        if not pid:
            print(os.getpid(), flush=True)
            time.sleep(600)
            os._exit(0)
        time.sleep(600)

drive(Tree(sys.argv[1]).create_session(session_id="forks"), Agent())
"""


# covers A58 B33
def test_a_killed_executor_is_seen_as_dead_although_a_child_of_its_agent_lives_on(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with subprocess.Popen([sys.executable, "-c", FORKS, root], stdout=subprocess.PIPE, text=True) as executor:
        assert executor.stdout
        child = int(executor.stdout.readline())
        try:
            run_dir = Tree(root).session("forks").run("run-1")
            assert is_executor_alive(run_dir.directory)
            executor.kill()
            executor.wait()
            os.kill(child, 0)
            assert not is_executor_alive(run_dir.directory)
        finally:
            os.kill(child, signal.SIGKILL)
            executor.kill()
