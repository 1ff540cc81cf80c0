"""Lists sessions with agentrun: `ROOT ACCOUNT`."""

import sys
from itertools import islice

from serving import seconds_of, serve

from agentrun.commands.listing import rows
from agentrun.store.tree import Tree

tree = Tree(sys.argv[1], sys.argv[2])


def newest(_: int) -> None:
    assert len(list(islice(rows(tree), 20))) == 20


def everything(_: int) -> None:
    assert any(row.newest for row in list(rows(tree)))


serve(
    newest=lambda times: seconds_of(newest, times),
    everything=lambda times: seconds_of(everything, times),
)
