"""What lies in the place of something in one's own account, and may not be opened: told, and nothing else hidden.

Commands run as a user without root's rights here: root opens everything, and is never told EACCES.

# covers promise 2 and 14. case C21.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from shared_root import Shared, shared_root

pytestmark = pytest.mark.slow

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give things to other users")
# A user that nobody has; who is nobody's root already stays himself.
ANN = os.geteuid() or 64001
OTHER = 64002
NOT_OVER, DAMAGED = 6, 10


@pytest.fixture
def shared() -> Iterator[Shared]:
    with shared_root() as shared:
        for name in ("well", "bad"):
            assert shared.run(ANN, "new", "--id", name).returncode == 0
            assert shared.run(ANN, "send", name, "ask me").returncode == 5
        yield shared


@pytest.mark.parametrize("kind", ["closed", pytest.param("foreign", marks=AS_ROOT)])
def test_a_session_that_may_not_be_opened_hides_no_other(kind: str, shared: Shared) -> None:
    (account,) = (shared.root / "accounts").iterdir()
    bad = account / "sessions" / "bad"
    bad.chmod(0) if kind == "closed" else os.chown(bad, OTHER, OTHER)
    try:
        for words, code in (
            (["ls"], 0), (["search", "ask"], 0), (["check"], DAMAGED), (["recover", "--dry-run"], NOT_OVER),
            (["recover"], NOT_OVER), (["send", "well", "more", "--if-busy", "queue", "--detach"], 0), (["new"], 0),
        ):  # fmt: skip
            done = shared.run(ANN, *words)
            assert done.returncode == code, (words, done)
            if words[0] in ("ls", "search"):
                assert b"well" in done.stdout
            if words[0] not in ("send", "new"):
                assert b"sessions/bad" in done.stdout + done.stderr, (words, done)
    finally:
        bad.chmod(0o700)
