"""Starts tool processes, and ends them with everything that descends from them.

Everything that starts a process goes through here: who starts one has to be able to end it, with its
children and theirs. `run` starts a tool and follows it to its end, `peer` starts a
program that is talked to, `output` keeps what it says within
bounds, `tree` finds and ends what belongs together, with `procfs` (proc(5)) and `orphans` below it.
"""

from agentrun.adapters.process.marks import others_running
from agentrun.adapters.process.named import end_executor, end_named
from agentrun.adapters.process.orphans import become_subreaper
from agentrun.adapters.process.peer import Peer, open_peer
from agentrun.adapters.process.run import Outcome, run_process
from agentrun.adapters.process.starting import CannotStart
from agentrun.adapters.process.tree import Survivor, end_descendants, end_marked, end_marked_now

__all__ = [
    "CannotStart",
    "Outcome",
    "Peer",
    "Survivor",
    "become_subreaper",
    "end_descendants",
    "end_executor",
    "end_marked",
    "end_marked_now",
    "end_named",
    "open_peer",
    "others_running",
    "run_process",
]
