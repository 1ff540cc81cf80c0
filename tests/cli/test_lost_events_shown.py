"""`show` of a run that is over whose events are lost says so, and says nothing that it cannot know.

Covers A49, B54, promise 2.
"""

from __future__ import annotations

from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow


def test_what_is_lost_of_a_run_that_is_over_is_said_where_it_is_shown(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "go").code == 0
    (home.run_dir(session) / "operations.jsonl").write_bytes(b"")
    shown = home.run("show", f"{session}/1")
    assert "of its events are lost or cannot be read" in shown.text
    assert f"agentrun check {session}" in shown.text
    # Which turn it went to stood in the events; that it was delivered, the snapshot knows.
    assert "› #1 prompt  delivered\n" in shown.text
    assert "returned" not in shown.text
