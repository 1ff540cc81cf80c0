"""What a process keeps of a run whose answer or beginning came to nothing: not the executor's lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Says something to a run again and again, each time to one of its own. The disk refuses the first file that is opened,
# then the second, and so on until none is left to refuse: what the system would say comes from an audit hook, which
# every open(2) of the process passes. Prints how many were refused, and the runs that look driven after it.
REFUSE = """
import errno, os, sys
from agentrun.commands import control, stops
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.errors import AgentrunError
from agentrun.store.inbox import Order
from agentrun.store.locks import is_executor_alive
from agentrun.store.tree import Tree
from agentrun.testing import trees

left = None
def refuse(event, arguments):
    global left
    # Not what Python itself opens, which names a mode, nor what the kernel says of processes.
    of_the_tree = event == "open" and arguments[1] is None and not str(arguments[0]).startswith("/proc/")
    if of_the_tree and left is not None:
        left -= 1
        if left < 0:
            left = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))
sys.addaudithook(refuse)

place = Place(Tree(sys.argv[1], "ann"), None, os.environ)
SAYING = control.Saying(control.said("week 12", None), Order)

def waiting(kind):
    session = place.tree.create_session(title="t")
    executor = trees.Executor(session, trees.accept(session, order=Order(agent="command:true")).run_id)
    executor.ask(kind=kind)
    executor.append(trees.E.RUN_LEASE_RELEASED, reason="waiting")
    executor.die()
    return Target(session, "run-1")

def stopped():
    target = waiting("question")
    trees.cancel(target.session, "run-1")
    return target

def fresh():
    return Target(place.tree.create_session(title="t"), None)

CASES = {
    "settle": (lambda: waiting("approval"), lambda target: control.settle(place, target, None, True, None)),
    "answer": (lambda: waiting("question"), lambda target: control.say(place, target, SAYING)),
    "begin": (fresh, lambda target: control.say(place, target, SAYING)),
    "wind down": (stopped, lambda target: stops.cancel(place, target, "enough")),
}
make, say = CASES[sys.argv[2]]
step = int(sys.argv[3])
refused, driven = 0, []
while True:
    target = make()
    left = refused
    try:
        acceptance = say(target)
    except AgentrunError:
        pass
    else:
        if isinstance(acceptance, control.Acceptance) and acceptance.liveness is not None:
            os.close(acceptance.liveness)
    was_refused, left = left is None, None
    if target.session.has_run("run-1") and is_executor_alive(target.session.run("run-1").directory):
        driven.append(refused)
    if not was_refused:
        break
    refused += step
print(refused, driven)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("case", "step"), [("settle", 1), ("answer", 1), ("begin", 1), ("wind down", 3)])
def test_a_disk_that_refuses_anywhere_leaves_no_run_that_looks_driven(case: str, step: int, tmp_path: Path) -> None:
    # covers A40 A58
    argv = [sys.executable, "-c", REFUSE, str(tmp_path), case, str(step)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    refused, _, driven = done.stdout.strip().partition(" ")
    assert driven == "[]"
    assert int(refused) > 10, "nothing much was refused"
