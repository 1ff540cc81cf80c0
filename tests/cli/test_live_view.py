"""One run on many terminals at once: narrow, without colour, without unicode, without events of the kernel, closed."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow

# A user's share of inotify instances is used up (inotify(7): EMFILE), as with an editor that watches a big tree.
STRACE = ("strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=inotify_init1")
EXHAUSTED = (*STRACE, "-e", "inject=inotify_init1:error=EMFILE")
ASCII = {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}


@pytest.fixture
def held(home: Home) -> str:
    """A run that is held in a tool, and has said something."""
    home.tool("wait", home.gate())
    home.model({"text": "one moment", "calls": [{"name": "wait"}]}, {"text": "the whole report"})
    run = home.detach(home.new("a title"), "analyse")
    home.at_gate()
    return str(run)


def test_each_terminal_tells_the_whole_run_in_its_own_way(home: Home, held: str, until: Until) -> None:
    # covers A41 A75 B16
    viewers = {
        "narrow": home.terminal("show", "-f", held, columns=20),
        "ascii": home.terminal("show", "-f", held, env=ASCII),
        "one row": home.terminal("show", "-f", held, rows=1),
        "dumb": home.terminal("show", "-f", held, env={"TERM": "dumb"}),
        "closed": home.terminal("show", "-f", held),
    }
    if shutil.which("strace"):
        viewers["polling"] = home.on_terminal([*EXHAUSTED, *home.argv("show", "-f", held)])
    for name, viewer in viewers.items():
        viewer.wait_for("● running" if name == "one row" else "wait")
    closed = viewers.pop("closed")
    closed.hang_up()
    assert closed.end() == 129

    assert home.run("steer", held, "only new products").code == 0
    for name in viewers.keys() - {"dumb", "one row"}:
        assert "#2 steer waiting" in viewers[name].wait_for("#2 steer waiting"), name
    viewers["late"] = home.terminal("show", "-f", held)
    viewers["late"].wait_for("#2 steer waiting")

    home.open_gate()
    for name, viewer in viewers.items():
        assert viewer.end() == 0, name
        text = viewer.text.replace("\n", "")
        for words in ("#1 prompt", "one moment", "op-2  wait", "#2 steer  delivered", "only new products"):
            # Where nothing is drawn again, that a tool has begun is a line of its own.
            times = 2 if (name, words) == ("dumb", "op-2  wait") else 1
            assert text.count(words) == times, (name, words, text)
        assert text.count("the whole report") == 1, (name, text)
    assert viewers["ascii"].raw.isascii()
    assert not re.search(rb"\x1b\[[0-9;]*m", viewers["ascii"].raw)
    assert b"\x1b" not in viewers["dumb"].raw
    assert home.status(held) == "completed"


def test_a_viewer_of_a_run_in_which_nothing_happens_hardly_wakes(home: Home, held: str) -> None:
    """A sample; `test_watching` measures each kind of viewer for longer."""
    viewer = home.terminal("show", "-f", held)
    viewer.wait_for("wait")
    began, before = time.monotonic(), _switches(viewer.pid)
    assert home.run("wait", held, "--timeout", "2s").code == 124
    # An age each second, and a look for safety each second; each takes a few.
    assert _switches(viewer.pid) - before <= 15 * (time.monotonic() - began)
    home.open_gate()
    assert viewer.end() == 0


def _switches(pid: int) -> int:
    """How often the process went to sleep, which is once more than it was woken."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
