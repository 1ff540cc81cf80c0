"""The other side of `workers.Worker`: reads what to do from stdin, line by line, and prints what came of it.

Needs nothing but the standard library, since it runs in the environments of the peers as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(**actions: Callable[..., Any]) -> None:
    """Calls the named actions as asked, until stdin ends."""
    # What a library prints must not come between.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("null", file=out, flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(actions[name](*arguments)), file=out, flush=True)


def seconds_of(action: Callable[[int], object], count: int) -> list[float]:
    """The seconds that each of `count` actions took; each is given its number."""
    taken = []
    for number in range(count):
        start = time.perf_counter()
        action(number)
        taken.append(time.perf_counter() - start)
    return taken
