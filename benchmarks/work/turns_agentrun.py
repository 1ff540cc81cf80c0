"""A run of agentrun's own agent, a model that is scripted and a tool that does nothing: `FOLDER`.

Told are the seconds that the run took from its prompt to its published end, and those that went by inside of syncs.
"""

import os
import sys
import time
from collections.abc import Awaitable, Callable

from serving import serve

from agentrun.agent.loop import LoopAgent
from agentrun.agent.outside import Unreachable
from agentrun.agent.protocols import Limits, ModelReply, ModelRequest, ToolCall
from agentrun.executor.audience import NoAudience
from agentrun.executor.drive import Job, execute
from agentrun.executor.hold import Terms
from agentrun.states import RunStatus
from agentrun.store.locks import take_liveness
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.fakes import FakeTool

syncs: list[float] = []


def watched(sync: Callable[[int], None]) -> Callable[[int], None]:
    def wrapper(fd: int) -> None:
        start = time.perf_counter()
        sync(fd)
        syncs.append(time.perf_counter() - start)

    return wrapper


os.fsync, os.fdatasync = watched(os.fsync), watched(os.fdatasync)
tree = Tree(f"{sys.argv[1]}/root")


class Scripted:
    name = "scripted"

    def __init__(self, turns: int) -> None:
        self._left = turns

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        self._left -= 1
        calls = (ToolCall(f"call-{self._left}", "nothing", {}),) if self._left else ()
        return ModelReply(f"turn {self._left}", calls)


async def nothing_left(is_forced: Callable[[], bool]) -> list[str]:
    return []


def run(turns: int) -> tuple[float, float, int]:
    session = tree.create_session()
    agent = LoopAgent(Scripted(turns), [FakeTool("nothing")], Limits(), "")
    terms = Terms(lease=15, timeout=None, answer_timeout=None)
    nobody = Unreachable("nothing is configured")
    syncs.clear()
    start = time.perf_counter()
    run_dir = trees.accept(session)
    liveness = take_liveness(run_dir.directory)
    assert liveness is not None
    job = Job(session, run_dir.run_id, liveness, agent, nobody, terms, NoAudience(), nothing_left, lambda _: None, [])
    ended = execute(job)
    seconds = time.perf_counter() - start
    assert ended.run.status is RunStatus.COMPLETED
    return seconds, sum(syncs), len(syncs)


serve(run=run)
