"""The page in a real browser: it looks as it should, wide and narrow, light and dark; nothing runs, nothing is fetched.

Skipped where there is no chromium.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentrun.records.timeline import RunRecord, timeline_of
from agentrun.render.html import page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]
# Added by the test alone, to a page whose policy it takes away: tells what the browser made of it.
MEASURE = """<script>
const box = each => { const it = each.getBoundingClientRect(); return [it.left, it.right, it.top, it.bottom] }
const rows = [...document.querySelectorAll('.row')].map(row => ({
  name: row.querySelector('.name').textContent.trim(),
  label: box(row.querySelector('.name')),
  track: box(row.querySelector('.track')),
  bars: [...row.querySelectorAll('.bar')].map(box)
}))
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth
const colour = getComputedStyle(document.body).backgroundColor
const pre = document.createElement('pre')
pre.id = 'measured'
pre.textContent = JSON.stringify({rows, wide, colour})
document.body.append(pre)
</script>"""


def browse(path: Path, *arguments: str, width: int = 1100) -> str:
    """The document that the browser made of the page."""
    # A process of the browser may outlive it for a moment, and still write there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        argv = [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                f"--user-data-dir={profile}",
                "--dump-dom",
            ),
            *(f"--window-size={width},900", "--hide-scrollbars", *arguments, path.as_uri()),
        ]
        done = subprocess.run(argv, capture_output=True, timeout=80, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.decode("utf-8")


def measure(path: Path, *arguments: str, width: int = 1100) -> dict[str, Any]:
    """Where things stand on the page."""
    text = path.read_text(encoding="utf-8")
    bare, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert count == 1
    copy = path.with_name("measured.html")
    copy.write_text(bare.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    found = re.search(r'<pre id="measured">(.*?)</pre>', browse(copy, *arguments, width=width), re.DOTALL)
    assert found
    return dict(json.loads(html.unescape(found[1])))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Something that could be reached, if anything were."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.setblocking(False)
        yield server


def attack(address: str) -> str:
    """Text that would fetch from `address`, or change the title, if it were taken for anything but text."""
    return (
        f"</script></pre></title></style><img src='{address}/1' onerror=\"document.title='owned'\">"
        f"<script>document.title='owned'</script><link rel=stylesheet href='{address}/2'>"
        f"![picture]({address}/3.png) <iframe src='{address}/4'></iframe> \u202eturned"
    )


def written(run: Any, path: Path, title: str, report: str | None = None) -> Path:
    record = RunRecord(run.detail(report), timeline_of(run.events))
    path.write_text("".join(page(run.session(title), (), [record], run.now)), encoding="utf-8")
    return path


def test_hostile_text_is_read_and_neither_runs_nor_fetches(
    story: Callable[..., Any], tmp_path: Path, listener: socket.socket
) -> None:
    text = attack(f"http://127.0.0.1:{listener.getsockname()[1]}")
    run = story().started(text)
    run.asks_model(1, "turn-1")
    run.model_says(1, text, calls=True)
    run.tool(2, "turn-1", text, {"text": text})
    run.tool_ends(2, "failed", error=text)
    run.message("user", "steer", text)
    run.delivered(2, "turn-2")
    run.asks_model(3, "turn-2")
    run.model_says(3, f"# Report\n\n{text}")
    run.finished("completed")
    path = written(run, tmp_path / "page.html", text, f"# Report\n\n{text}")
    # Also without the policy, as a browser that does not know it would show the page.
    bare = tmp_path / "bare.html"
    bare.write_text(path.read_text(encoding="utf-8").replace("Content-Security-Policy", "x"), encoding="utf-8")
    for each in (path, bare):
        shown = browse(each)
        assert not re.search(r"<(img|script|link|iframe|svg)\b", shown)
        assert "<title>owned" not in shown
        # The prompt, the reply, the name, arguments and error of the tool, the steer, the report.
        assert shown.count("&lt;script&gt;document.title='owned'&lt;/script&gt;") >= 7
        assert "\u202e" not in shown
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_bars_of_parallel_tools_overlap_and_those_of_turns_do_not(review: Any, tmp_path: Path) -> None:
    path = written(review, tmp_path / "page.html", "a title")
    measured = measure(path)
    bars = {row["name"].split()[1]: row["bars"] for row in measured["rows"]}
    (sales,), traffic = bars["op-2"], bars["op-3"]
    assert len(traffic) == 2  # two attempts
    assert sales[0] < traffic[0][0] < sales[1] < traffic[-1][1]
    assert bars["op-1"][0][1] <= sales[0] + 1
    for row in measured["rows"]:
        assert row["label"][1] <= row["track"][0] + 1
        for left, right, top, bottom in row["bars"]:
            assert row["track"][0] - 1 <= left < right <= row["track"][1] + 4
            assert bottom - top > 3
    assert measured["wide"] == 0


def test_on_a_narrow_screen_in_the_dark_nothing_is_cut_off(review: Any, tmp_path: Path) -> None:
    review.model_says(5, "x" * 400 + "\n\n| a | b |\n|---|---|\n| " + "y" * 300 + " | z |")
    path = written(review, tmp_path / "page.html", "a title without end " * 20)
    measured = measure(path, "--blink-settings=preferredColorScheme=0", width=500)
    assert measured["wide"] == 0
    for row in measured["rows"]:
        assert row["label"][3] <= row["track"][2] + 1  # the bars stand below the names
    red, green, blue = map(int, re.findall(r"\d+", measured["colour"])[:3])
    assert max(red, green, blue) < 64
