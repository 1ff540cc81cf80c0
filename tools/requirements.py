"""Which test shows which requirement: read from the marks in the tests, so that the map is held in one place.

A test says `covers A53 B26` (or `covers A21-A24`) in its docstring or in a comment inside it, and a file of tests in
its docstring or in a comment outside every test. `tools/requirements.txt` has the requirements in short words.

    python tools/requirements.py            what each requirement is shown by, and what is shown by nothing
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "tools" / "requirements.txt"
TESTS = ROOT / "tests"

_MARK = re.compile(r"\bcovers\s+((?:[AB]\d+(?:\s*-\s*[AB]\d+)?(?:,\s*|\s+and\s+|\s+)?)+)", re.IGNORECASE)
_NUMBERS = re.compile(r"([AB])(\d+)(?:\s*-\s*[AB](\d+))?")


def requirements() -> dict[str, str]:
    """The words of each requirement by its number, in order.

    Raises ValueError if a number stands there twice.
    """
    found: dict[str, str] = {}
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        number, _, words = line.partition(" ")
        if number in found and number != "#":
            raise ValueError(f"{number} stands twice in {WORDS.name}")
        if number != "#":
            found[number] = words
    return found


def shown() -> dict[str, list[str]]:
    """By requirement, the tests that say that they show it, as pytest takes them."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for test, number in _all_marks(path.read_text(encoding="utf-8")):
            node = f"{name}::{test}" if test else name
            if node not in found.setdefault(number, []):
                found[number].append(node)
    return found


@functools.cache
def _all_marks(source: str) -> tuple[tuple[str, str], ...]:
    # To read all tests takes seconds, and one process of the tests asks again and again.
    return tuple(marks(source))


def marks(source: str) -> Iterator[tuple[str, str]]:
    """Each mark in a file of tests: the test that it stands in, or nothing for the whole file, and the number."""
    tests = [
        (node.name, node.lineno - len(node.decorator_list), node.end_lineno or node.lineno)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    for line, text in _texts(source):
        test = next((name for name, first, last in tests if first <= line <= last), "")
        for number in _numbers(text):
            yield test, number


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings with their lines; comments that follow each other are one text."""
    block: list[str] = []
    first, last = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield first, " ".join(block)
                block, first = [], token.start[0]
            block.append(token.string.lstrip("# "))
            last = token.start[0]
        elif token.type == tokenize.STRING and token.string.lstrip("rR").startswith('"""'):
            yield token.start[0], token.string.replace("#", " ").replace('"""', " ")
    yield first, " ".join(block)


def _numbers(text: str) -> Iterator[str]:
    for mark in _MARK.finditer(text):
        for letter, first, last in _NUMBERS.findall(mark[1]):
            yield from (f"{letter}{number}" for number in range(int(first), int(last or first) + 1))


def table() -> str:
    """The map as a page has it."""
    tests, lines = shown(), []
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        number, _, words = line.partition(" ")
        if number == "#":
            lines += ["", f"## {words}", ""]
            continue
        lines.append(f"* **{number}** {words}")
        lines += [f"  * `{node}`" for node in tests.get(number, ())] or ["  * not shown yet"]
    return "\n".join(lines).strip("\n")


def main() -> int:
    missing = [number for number in requirements() if number not in shown()]
    print(table())
    print(f"\nnot shown yet: {' '.join(missing) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
