"""Which type each stored field has, as `docs/format.md` says it: nothing that is read from the disk is believed before.

A field that is not listed may hold anything. Whether a field may be missing says whoever reads it.
"""

from __future__ import annotations

from agentrun.records.codec import Doc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeGuard

    # The types of a field, and what is to be looked at besides: the fields of an object, the `Field` of a list's
    # elements, or `_IN_RANGE`.
    Field = tuple[frozenset[type], "Any"]
    Fields = dict[str, Field]

# What a JSON number is for everybody who reads it (RFC 8259, section 6), and what a float of Python can be made of.
_MOST = 1 << 53
MOST_COUNT = _MOST - 1
_IN_RANGE = object()

_NOTHING = type(None)


def _of(*types: type, deeper: Any = None) -> Field:
    return frozenset(types), deeper


TEXT = _of(str)
MAYBE_TEXT = _of(str, _NOTHING)
FLAG = _of(bool)
MAYBE_FLAG = _of(bool, _NOTHING)
COUNT = _of(int, deeper=_IN_RANGE)
MAYBE_COUNT = _of(int, _NOTHING, deeper=_IN_RANGE)
MAYBE_NUMBER = _of(int, float, _NOTHING, deeper=_IN_RANGE)


def _object(**fields: Field) -> Field:
    return _of(dict, _NOTHING, deeper=fields)


def _list_of(field: Field) -> Field:
    return _of(list, deeper=field)


def _maybe(field: Field) -> Field:
    return field[0] | {_NOTHING}, field[1]


TEXTS = _list_of(TEXT)
COUNTS = _list_of(COUNT)

_OWNER = _object(
    user=TEXT, host=TEXT, pid=COUNT, startTime=MAYBE_COUNT, bootId=MAYBE_TEXT, pidNamespace=MAYBE_COUNT,
    userNamespace=MAYBE_COUNT,
)  # fmt: skip
_WHEREABOUTS = _list_of(_of(dict, deeper={**_OWNER[1], "generation": COUNT}))
_ACTOR = _object(user=MAYBE_TEXT, host=MAYBE_TEXT, pid=MAYBE_COUNT, run=MAYBE_TEXT)
_CONFIG = _object(path=MAYBE_TEXT, sha256=MAYBE_TEXT)
_PARENT = _object(sessionId=TEXT, runId=TEXT, operationId=MAYBE_TEXT)
_KEPT = _object(sha256=TEXT, bytes=COUNT)
_COVERS = _object(messageSeq=COUNT, runId=MAYBE_TEXT, eventSeq=MAYBE_COUNT)
_CALL = _of(dict, deeper={"id": MAYBE_TEXT, "name": MAYBE_TEXT})
_OWN_COUNTS = ("turns", "modelRequests", "toolCalls", "checks", "retries", "executingMs")
_USAGE = _object(
    **dict.fromkeys(
        ("turns", "modelRequests", "toolCalls", "checks", "retries", "inputTokens", "outputTokens", "cacheReadTokens",
         "cacheWriteTokens", "executingMs"),
        MAYBE_COUNT,
    ),
    costUsd=MAYBE_NUMBER,
)  # fmt: skip

# Of the events whose type is known.
PAYLOAD: Fields = {
    **dict.fromkeys(
        ("accountId", "agent", "continues", "deadline", "effect", "error", "evidence", "expiresAt", "idempotencyKey",
         "inputMode", "intent", "key", "kind", "mode", "model", "note", "operationId", "question", "questionId",
         "reason", "remoteId", "resource", "result", "sessionId", "status", "stopReason", "terminalStatus", "text",
         "timeoutAt", "toolCallId", "toolName", "turnId", "via"),
        MAYBE_TEXT,
    ),
    **dict.fromkeys(("approved", "force", "gone", "mayHaveEffects", "willRetry"), MAYBE_FLAG),
    **dict.fromkeys(("messageSeq", "attempt"), COUNT),
    **dict.fromkeys(("afterSeq", "executingMs", "pauseMs", "previousGeneration"), MAYBE_COUNT),
    **dict.fromkeys(("messageSeqs", "returnedInputs"), COUNTS),
    **dict.fromkeys(("operationIds", "survivors", "unresolvedOperations"), _maybe(TEXTS)),
    "references": TEXTS,
    "attachments": _maybe(_list_of(_of(dict, deeper={}))),
    "toolCalls": _maybe(_list_of(_CALL)),
    "timeout": MAYBE_NUMBER,
    "actor": _ACTOR,
    "blob": _KEPT,
    "config": _CONFIG,
    "covers": _COVERS,
    "extra": _object(),
    "fenced": _OWNER,
    "owner": _OWNER,
    "parentRun": _PARENT,
    "report": _KEPT,
    "usage": _USAGE,
    "whereabouts": _maybe(_WHEREABOUTS),
}  # fmt: skip

_OPERATION = _of(dict, deeper={
    **dict.fromkeys(("operationId", "kind", "name", "status"), TEXT),
    **dict.fromkeys(
        ("turnId", "effect", "resource", "idempotencyKey", "remoteId", "registeredAt", "startedAt", "finishedAt",
         "cancelRequestedAt", "error"),
        MAYBE_TEXT,
    ),
    "attempt": COUNT,
    "mayHaveEffects": FLAG,
})  # fmt: skip

# Of `run.json`.
RUN: Fields = {
    **dict.fromkeys(("sessionId", "runId", "accountId", "status", "inputMode", "createdAt", "updatedAt"), TEXT),
    **dict.fromkeys(
        ("agent", "startedAt", "timeoutAt", "cancelRequestedAt", "ending", "terminalStatus", "terminalAt", "reason",
         "leaseExpiresAt", "continues"),
        MAYBE_TEXT,
    ),
    **dict.fromkeys(("generation", "messageSeq", "attempts", "appliedSeq", "unreadEvents"), COUNT),
    **dict.fromkeys(("references", "survivors"), TEXTS),
    **dict.fromkeys(("deliveredInputs", "returnedInputs"), COUNTS),
    **dict.fromkeys(("openOperations", "unresolvedOperations"), _list_of(_OPERATION)),
    "children": _list_of(
        _of(dict, deeper={"operationId": MAYBE_TEXT, "sessionId": MAYBE_TEXT, "afterSeq": MAYBE_COUNT})
    ),
    "config": _CONFIG,
    "fenced": _OWNER,
    "force": FLAG,
    "leaseOwner": _OWNER,
    "parentRun": _PARENT,
    "report": _KEPT,
    "timeout": MAYBE_NUMBER,
    # What a model did not tell is null; agentrun's own counts never are.
    "usage": _of(dict, deeper=_USAGE[1] | dict.fromkeys(_OWN_COUNTS, COUNT)),
    "waitingFor": _of(dict, _NOTHING, deeper=PAYLOAD),
    "whereabouts": _WHEREABOUTS,
}  # fmt: skip

# Of `accept` in the line of a prompt.
ACCEPT: Fields = {
    "agent": MAYBE_TEXT,
    "references": _maybe(TEXTS),
    "attachments": PAYLOAD["attachments"],
    "timeout": MAYBE_NUMBER,
    "config": _CONFIG,
    "parentRun": _PARENT,
    "continues": MAYBE_TEXT,
    "atHead": MAYBE_FLAG,
    "behind": _maybe(TEXTS),
}

# Of a line of `messages.jsonl`.
ACTOR: Fields = _ACTOR[1]
MESSAGE: Fields = {
    **dict.fromkeys(("mode", "at", "key", "questionId"), MAYBE_TEXT),
    "actor": _ACTOR,
    "accept": _maybe(_of(dict, deeper=ACCEPT)),
}

# Of `session.json`.
_ORIGIN: Fields = {"sessionId": TEXT, "seq": COUNT}
_ORIGIN["forkedFrom"] = _of(dict, _NOTHING, deeper=_ORIGIN)  # of a fork of a fork
SESSION: Fields = {
    **dict.fromkeys(("sessionId", "accountId", "title", "createdAt", "updatedAt"), TEXT),
    **dict.fromkeys(("agent", "workingDirectory"), MAYBE_TEXT),
    "formatVersion": COUNT,
    "archived": FLAG,
    "remoteIds": _of(dict),
    "forkedFrom": _ORIGIN["forkedFrom"],
    "revision": COUNT,
}

# Of `lease.json`.
LEASE: Fields = {
    **dict.fromkeys(("renewedAt", "expiresAt"), TEXT),
    **dict.fromkeys(("generation", "executingMs"), COUNT),
    "owner": _of(dict, deeper=_OWNER[1]),
    "expiresBootSeconds": _of(int, float, deeper=_IN_RANGE),
    "locked": FLAG,
}


def wrong_field(doc: Doc, fields: Fields) -> str | None:
    """The first field of `doc` that has another type than `fields` say, or a number that none can be; None if none has.

    Nothing is said of what is missing.
    """
    # Whoever reads a long log passes here for each of its lines.
    of = fields.get
    for name, value in doc.items():
        field = of(name)
        if field is None:
            continue
        types, deeper = field
        kind = type(value)
        if kind not in types:
            return name
        # What is empty, zero or nothing has nothing in it that could be wrong.
        if deeper is None or not value:
            continue
        if not (-_MOST < value < _MOST if kind is int else _is_right(value, deeper)):
            return name
    return None


def is_count(value: object) -> TypeGuard[int]:
    """Whether `value` is a whole number that every reader of JSON takes for the same."""
    return type(value) is int and -_MOST < value < _MOST


def check_fields(doc: Doc, fields: Fields, what: str) -> None:
    """Raises ValueError, which says that `doc` is no `what`, if one of its fields is wrong: see `wrong_field`."""
    name = wrong_field(doc, fields)
    if name is not None:
        raise ValueError(f"no {what}: {name} is of another type")


def _is_right(value: Any, deeper: Any) -> bool:
    """Whether what is in a field of the right type is right, too."""
    if deeper is _IN_RANGE:
        return bool(-_MOST < value < _MOST)
    if type(value) is dict:
        return wrong_field(value, deeper) is None
    types, inner = deeper
    return all(type(each) in types and (inner is None or each is None or _is_right(each, inner)) for each in value)
