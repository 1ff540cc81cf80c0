"""The map of the requirements is complete, and as true as the tests that it names: they exist, and they run."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import requirements  # noqa: E402 - a tool is no part of the package

# Requirements that no test shows yet. Whoever shows one takes it out here: then it cannot get lost again.
NOT_SHOWN: set[str] = set()


def test_every_requirement_is_there_once_and_in_order() -> None:
    numbers = [f"A{number}" for number in range(1, 76)] + [f"B{number}" for number in range(1, 64)]
    assert list(requirements.requirements()) == numbers
    assert all(words.endswith(".") and len(words) < 140 for words in requirements.requirements().values())


def test_every_requirement_is_shown_by_a_test_or_openly_missing() -> None:
    shown = requirements.shown()
    assert {number for number in requirements.requirements() if number not in shown} == NOT_SHOWN


def test_no_test_claims_what_is_no_requirement() -> None:
    unknown = {
        number: tests for number, tests in requirements.shown().items() if number not in requirements.requirements()
    }
    assert unknown == {}


def test_every_test_that_is_named_is_one_that_runs() -> None:
    for node in {node for nodes in requirements.shown().values() for node in nodes}:
        path, _, name = node.partition("::")
        tests = functions_of(ROOT / path)
        assert tests.count(name) == 1 if name else any(each.startswith("test_") for each in tests), node


@functools.cache
def functions_of(path: Path) -> list[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_the_page_says_what_the_marks_say() -> None:
    page = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    assert requirements.table() in page


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Covers A3, A8-A10 and B1, cases C6."""', [("", "A3"), ("", "A8"), ("", "A9"), ("", "A10"), ("", "B1")]),
        ("# covers A1\ndef test_x(): pass\n", [("", "A1")]),
        ("def test_x():\n    # covers A1 B2\n    pass", [("test_x", "A1"), ("test_x", "B2")]),
        ('def test_x():\n    """It holds. # covers A1: always."""', [("test_x", "A1")]),
        ("@mark\ndef test_x():\n    a = 1  # covers A1\n    # case C7\n", [("test_x", "A1")]),
        ("def helper():\n    # covers A1\n    pass", [("", "A1")]),
        ("x = 'covers A1'\n# discovers A2\n# it covers the A4 page\n", []),
        ("# covers A1,\n# A2\n", [("", "A1"), ("", "A2")]),
    ],
)
def test_a_mark_is_found_where_it_stands(source: str, expected: list[tuple[str, str]]) -> None:
    assert list(requirements.marks(source)) == expected
