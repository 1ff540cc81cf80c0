"""The file of a scripted model, which `scripted` plays: reading it is all that it takes to see what is wrong with it.

It is JSON: `{"turns": [{"ifContains": ..., "text": ..., "calls": [...], "ask": ..., "delayMs": ...}]}`.
"""

from __future__ import annotations

from agentrun.config import nearest
from agentrun.config.files import file_bytes
from agentrun.errors import ConfigError
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ScriptedTurn(NamedTuple):
    """One turn of a script; `number` counts from 1. `delay` is in seconds, between two words of `text`."""

    number: int
    if_contains: str | None = None
    text: str = ""
    calls: tuple[Doc, ...] = ()
    ask: str | None = None
    delay: float = 0.0


def load_turns(path: str) -> tuple[ScriptedTurn, ...]:
    """The turns of the script `path`. Raises ConfigError that names the file, the turn and what is wrong."""
    try:
        document = decode(file_bytes(path))
    except OSError as error:
        raise ConfigError(f"the script {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the script {path} is not a JSON object: {error}") from error
    return read_turns(document, path)


def read_turns(document: Doc, source: str) -> tuple[ScriptedTurn, ...]:
    """The turns of a script; `source` is what it is called in errors. Raises ConfigError."""
    _check_keys(document, ("turns",), source)
    turns = document.get("turns")
    if not isinstance(turns, list):
        raise ConfigError(f'{source}: "turns" must be a list')
    return tuple(_turn(turn, number, f"{source}: turn {number}") for number, turn in enumerate(turns, start=1))


def _turn(turn: Any, number: int, place: str) -> ScriptedTurn:
    _check_keys(turn, ("ifContains", "text", "calls", "ask", "delayMs"), place)
    for key in ("ifContains", "text", "ask"):
        if key in turn and not isinstance(turn[key], str):
            raise ConfigError(f"{place}: {key} must be text")
    delay, calls = turn.get("delayMs", 0), turn.get("calls", [])
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < float("inf"):
        raise ConfigError(f"{place}: delayMs must be a number of milliseconds")
    if not isinstance(calls, list):
        raise ConfigError(f"{place}: calls must be a list")
    return ScriptedTurn(
        number=number,
        if_contains=turn.get("ifContains"),
        text=turn.get("text", ""),
        calls=tuple(_checked_call(call, f"{place}, call {index}") for index, call in enumerate(calls, start=1)),
        ask=turn.get("ask"),
        delay=delay / 1000,
    )


def _checked_call(call: Any, place: str) -> Doc:
    _check_keys(call, ("name", "arguments"), place)
    if not isinstance(call.get("name"), str):
        raise ConfigError(f"{place}: name must be the name of a tool")
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ConfigError(f"{place}: arguments must be an object")
    return {"name": call["name"], "arguments": arguments}


def _check_keys(value: Any, known: tuple[str, ...], place: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{place} must be an object")
    for key in value:
        if key not in known:
            raise ConfigError(f"{place} has no key {key!r}{nearest(key, known)}")
