"""Starts tool processes, and ends them with everything that descends from them.

Everything that starts a process goes through here: who starts one has to be able to end it, with its
children and theirs. `run` starts a tool and follows it to its end, `output` keeps what it says within
bounds, `tree` finds and ends what belongs together, with `procfs` (proc(5)) and `orphans` below it.
"""

from agentrun.adapters.process.named import end_named
from agentrun.adapters.process.orphans import become_subreaper
from agentrun.adapters.process.procfs import others_running
from agentrun.adapters.process.run import CannotStart, Outcome, run_process
from agentrun.adapters.process.tree import Survivor, end_descendants, end_marked, end_marked_now

__all__ = [
    "CannotStart",
    "Outcome",
    "Survivor",
    "become_subreaper",
    "end_descendants",
    "end_marked",
    "end_marked_now",
    "end_named",
    "others_running",
    "run_process",
]
