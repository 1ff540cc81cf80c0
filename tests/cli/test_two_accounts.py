"""Two users of one machine on one root: neither reads, lists, steers, cancels or guesses what the other has.

They are users of the kernel here, not names that a command was given. "Not yours" is answered in the words of "not
there".

# covers A21 A22 A23 A27
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from shared_root import Shared, shared_root

from agentrun.testing.trees import fingerprint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become two other users"),
]

# Users that nobody has, so that nothing else on this machine is theirs.
ANN, BOB, CAROL = 64001, 64002, 64003
NOT_FOUND, DENIED = 8, 9
# Every command that names a session; `{0}` is the session.
ON_A_SESSION = (
    "show {0}", "show {0}/1", "show {0} --messages", "show {0}/1 --operations", "show {0}/1 --report", "show -f {0}/1",
    "send {0} more", "send {0} more --detach", "send {0} week --mode answer", "send {0} more --if-busy interrupt",
    "send {0} more --key k1", "steer {0} another", "steer {0}/1 another", "cancel {0}", "cancel {0}/1 --wait",
    "cancel {0} --force", "wait {0}/1", "approve {0}/1", "deny {0}/1", "resume {0}/1", "reconcile {0}/1", "compact {0}",
    "rename {0} mine", "fork {0}", "archive {0}", "unarchive {0}", "rm {0} --yes", "rm {0} --yes --force", "check {0}",
    "check {0} --repair", "search secret --session {0}",
)  # fmt: skip
# What another user's session may be guessed by.
GUESSES = ("show quarter", "show @last", "send @last hello", "cancel @last")


@pytest.fixture
def shared() -> Iterator[Shared]:
    with shared_root() as shared:
        made = shared.run(ANN, "new", "the quarter", "--id", "quarter-1")
        assert made.returncode == 0, made.stderr
        assert shared.run(ANN, "send", "quarter-1", "the secret figures").returncode == 0
        assert shared.run(ANN, "send", "quarter-1", "ask me", "--key", "k1").returncode == 5
        yield shared


def test_whatever_is_tried_on_another_s_session_is_answered_as_if_it_were_not_there(shared: Shared) -> None:
    before = fingerprint(str(shared.account(ANN)))
    wrong = []
    for each in ON_A_SESSION:
        theirs = shared.run(BOB, *each.format("quarter-1").split())
        missing = shared.run(BOB, *each.format("quarter-9").split())
        if theirs.returncode != NOT_FOUND:
            wrong.append(f"{each}: {theirs}")
        said = (theirs.stdout + theirs.stderr).replace(b"quarter-1", b"quarter-9")
        if (theirs.returncode, said) != (missing.returncode, missing.stdout + missing.stderr):
            wrong.append(f"{each}: {theirs}, and for what is not there {missing}")
    for each in GUESSES:
        guessed = shared.run(BOB, *each.split())
        if guessed.returncode != NOT_FOUND or b"quarter-1" in guessed.stdout + guessed.stderr:
            wrong.append(f"{each}: {guessed}")
    assert not wrong, "\n".join(wrong)
    assert fingerprint(str(shared.account(ANN))) == before


def test_nothing_of_another_is_in_any_list(shared: Shared) -> None:
    for words in (["ls"], ["ls", "--archived"], ["search", "secret"], ["check"], ["recover"], ["recover", "--dry-run"]):
        listed = shared.run(BOB, *words, "--json")
        assert (listed.returncode, listed.stdout) == (0, b""), (words, listed)
    # Two who chose one name have two sessions.
    assert shared.run(BOB, "new", "--id", "quarter-1").stdout == b"quarter-1\n"
    assert b"secret" not in shared.run(BOB, "show", "quarter-1").stdout
    assert b"secret" in shared.run(ANN, "show", "quarter-1", "--messages").stdout


@pytest.mark.parametrize(
    "each", ["ls", "show quarter-1", "send quarter-1 hello", "cancel quarter-1", "search secret", "recover"]
)
def test_to_say_that_one_is_another_opens_nothing(each: str, shared: Shared) -> None:
    before = fingerprint(str(shared.account(ANN)))
    for name in (f"uid-{ANN}", f"uid-{CAROL}"):
        tried = shared.run(BOB, *each.split(), "--account", name)
        assert b"secret" not in tried.stdout
        assert tried.stdout == b"" or each == "recover", tried
        if each not in ("ls", "search secret", "recover"):
            assert tried.returncode in (NOT_FOUND, DENIED), tried
    assert fingerprint(str(shared.account(ANN))) == before
    assert not shared.account(CAROL).exists()


def test_an_account_that_somebody_else_made_is_used_by_nobody(shared: Shared) -> None:
    """Whoever comes first under 1777 could make a directory in another's name, and read what is put there."""

    _as_bob('mkdir -m 777 "$1"', shared.account(CAROL))
    for words in (["new"], ["send", "s1", "secret"]):
        refused = shared.run(CAROL, *words)
        assert refused.returncode in (NOT_FOUND, DENIED), refused
        assert refused.stdout == b""
    assert list(shared.account(CAROL).iterdir()) == []


def test_the_kernel_keeps_others_out_too(shared: Shared) -> None:
    """Who passes by agentrun finds closed doors."""
    closed = [shared.account(ANN), *shared.account(ANN).rglob("*")]
    assert len(closed) > 10
    _as_bob('for path; do test ! -r "$path" || exit 1; done', *closed)


def _as_bob(script: str, *arguments: Path) -> None:
    """Runs a shell script as that user, without agentrun."""
    argv = ["/bin/sh", "-c", script, "sh", *map(str, arguments)]
    subprocess.run(argv, cwd="/", user=BOB, group=BOB, extra_groups=[], check=True)
