"""A session's tree with everything that differs from one playing to the next replaced by a word.

Two trees of the same story are equal then, so that a tree can be kept as an example of the format, and compared.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# Fields whose values name a process, a machine, a duration or a key made from the session's id.
_VARYING = frozenset(
    {
        "user",
        "host",
        "pid",
        "startTime",
        "bootId",
        "pidNamespace",
        "userNamespace",
        "executingMs",
        "pauseMs",
        "idempotencyKey",
        "accountId",
        "expiresBootSeconds",
    }
)


def normalised_tree(session: str, words: Mapping[str, str]) -> dict[str, str]:
    """The files below the directory `session` by their relative path; `words` says what to write for which text."""
    return {path: _normalised(os.path.join(session, path), words) for path in _files(session)}


def _files(top: str) -> Iterator[str]:
    for directory, _, names in sorted(os.walk(top)):
        for name in sorted(names):
            yield os.path.relpath(os.path.join(directory, name), top)


def _normalised(path: str, words: Mapping[str, str]) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".jsonl"):
        lines = _in_steady_order([json.loads(line) for line in text.splitlines()])
        text = "".join(f"{json.dumps(_plain(line), ensure_ascii=False)}\n" for line in lines)
    elif path.endswith(".json"):
        text = f"{json.dumps(_plain(json.loads(text)), ensure_ascii=False, indent=2)}\n"
    for found, word in words.items():
        text = text.replace(found, word)
    return _TIME.sub("TIME", text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: name.upper() if name in _VARYING and each is not None else _plain(each)
            for name, each in value.items()
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _in_steady_order(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls of one turn run at the same time: their events are put in the order of the operations."""
    ordered: list[dict[str, Any]] = []
    block: list[dict[str, Any]] = []
    for line in [*lines, {}]:
        if str(line.get("type", "")).startswith("tool."):
            block.append(line)
            continue
        ordered += sorted(block, key=lambda each: int(each["payload"]["operationId"].rpartition("-")[2]))
        block = []
        ordered += [line] if line else []
    return [{**line, "seq": number} if "seq" in line else line for number, line in enumerate(ordered, 1)]
