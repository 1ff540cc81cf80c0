"""Ids: hostile ones are refused before any path is made of them, new ones are unique and sort by creation.

Covers A3, A8, A27 and case C19.
"""

import json
import subprocess
import sys
import time

import pytest

from agentrun.errors import Denied
from agentrun.ids import checked_id, new_session_id, run_id, run_number

HOSTILE = [
    "", ".", "..", "/", "//", "../x", "x/../y", "x/", "/x", "a/b", "..\\x", "\\", "-x", "--help", "-", "_x", ".x",
    ".new-x", "x\n", "x\r", "\nx", "x\0", "\0", "x\x1b[2J", "x\x7f", "x y", " x", "x ", "x\t", "~", "~root", "$HOME",
    "*", "x*", "x?", "[x]", "x;y", "x|y", "x&y", "x'y", 'x"y', "x`y", "x%2e", "x:y", "@x", "x@y", "é", "x\u202e",
    "\ufeffx", "x\u2028", "１", "x" * 65, "x" * 300, "x" * 100_000, "\udc80", "Ω", "x\u0301", "\u212a",
]  # fmt: skip
HARMLESS = ["x", "X", "0", "a.b", "a..b", "a-b", "a_b", "run-1", "x.", "x-", "session-0", "x" * 64, "CON", "nul.txt"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_id_is_refused_and_quoted_safely(text: str) -> None:
    with pytest.raises(Denied) as caught:
        checked_id(text, "session")
    assert "session id" in caught.value.message
    assert len(caught.value.message) < 600
    assert caught.value.message.isprintable()
    assert caught.value.exit_code == 9


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_id_is_itself(text: str) -> None:
    assert checked_id(text, "session") == text


@pytest.mark.parametrize(
    "text",
    [*HOSTILE, "run-", "run-0", "run-01", "run--1", "run-+1", "run-1 ", "run-1\n", "RUN-1", "run-1/..", "run-1e3",
     "run-١", "run-" + "9" * 19, "xrun-1", "run_1", "1"],
)  # fmt: skip
def test_what_is_no_run_id_has_no_number(text: str) -> None:
    assert run_number(text) is None


@pytest.mark.parametrize("number", [1, 2, 9, 10, 99_999, 10**17])
def test_the_number_of_a_run_id_is_the_one_it_was_made_of(number: int) -> None:
    assert run_number(run_id(number)) == number
    assert checked_id(run_id(number), "run") == f"run-{number}"


def test_a_new_id_is_short_and_may_be_used() -> None:
    made = new_session_id()
    assert checked_id(made, "session") == made
    assert made.startswith("session-")
    assert len(made) <= 28


def test_ids_sort_by_creation() -> None:
    made = []
    for _ in range(20):
        made.append(new_session_id())
        moment = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == moment:
            pass
    assert sorted(made) == made


@pytest.mark.slow
def test_ids_made_in_tight_loops_by_eight_processes_are_unique() -> None:
    """Case C19."""
    code = (
        "import sys, json; from agentrun.ids import new_session_id as new; print(flush=True); sys.stdin.read(1);"
        "print(json.dumps([new() for _ in range(1000)]))"
    )
    makers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for maker in makers:
        assert maker.stdout is not None
        maker.stdout.readline()
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("x")
        maker.stdin.flush()
    made = [each for maker in makers for each in json.loads(maker.communicate()[0])]
    assert len(made) == 8000
    assert len(set(made)) == 8000
