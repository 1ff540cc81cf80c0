"""Searches with agentrun: `ROOT ACCOUNT`."""

import resource
import sys

from serving import seconds_of, serve

from agentrun.commands.searching import search
from agentrun.store.tree import Tree

tree = Tree(sys.argv[1], sys.argv[2])


def find_nothing(text: str, times: int) -> list[float]:
    def once(_: int) -> None:
        assert not list(search(tree, text))

    return seconds_of(once, times)


serve(search=find_nothing, peak_mb=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
