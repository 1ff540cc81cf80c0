"""What `recover` and `reconcile` say, as text: one line per run or operation, and what to type below it."""

from __future__ import annotations

import time

from agentrun.records.codec import Doc
from agentrun.records.operation import Operation
from agentrun.records.views import Recovered
from agentrun.render.safe import shown
from agentrun.render.theme import Screen, Span, Style, line, say
from agentrun.render.times import age, moment

_WORDS = {
    "continued": ("goes on", "would go on"),
    "started": ("is started", "would be started"),
    "ended": ("has ended as {status}", "would be ended"),
    "left": ("stays {status}", "would stay {status}"),
}


def recovered_text(recovered: Recovered, screen: Screen) -> str:
    """What became of a run that nobody drove."""
    words = _WORDS[recovered.what][recovered.dry_run].format(status=recovered.status.value)
    head = [Span(say(recovered.name, screen), Style.STRONG), Span(f" {words}: {say(recovered.reason, screen)}")]
    lines = [line(head, screen)]
    if recovered.hint:
        lines += [f"  {each}" for each in shown(recovered.hint, unicode=screen.unicode).split("\n")]
    return "".join(f"{each}\n" for each in lines)


def resumed_text(resumed: Doc, screen: Screen) -> str:
    """How a run goes on: the first line of `resume --json`, in words."""
    name = say(f"{resumed['sessionId']}/{resumed['runId']}", screen)
    words = {
        "continued": f"goes on with {name}, attempt {resumed['attempt']}",
        "started": f"starts {name}: it was its turn",
        "linked": f"starts {name}, which continues {say(str(resumed['continues']), screen)}",
    }
    return f"agentrun: {words[resumed['how']]}\n"


def operation_text(operation: Operation, screen: Screen, now: float | None = None) -> str:
    """An unresolved operation with all that helps to find out what it did."""
    at = moment(operation.started_at or operation.registered_at or "")
    since = age((time.time() if now is None else now) - at) if at is not None else "?"
    words = [operation.name, operation.status.value]
    for name, value in (
        ("remote id", operation.remote_id),
        ("key", operation.idempotency_key),
        ("resource", operation.resource),
    ):
        words.append(f"{name} {value}" if value else f"no {name}")
    words.append(since if since == "now" else f"{since} ago")
    head = [Span(say(operation.operation_id, screen), Style.STRONG)]
    return line([*head, *(Span(f"  {say(word, screen)}") for word in words)], screen) + "\n"
