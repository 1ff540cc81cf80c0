"""Each record survives being written and read, with the fields of other versions; what is none is an ordinary error.

Covers A11, A14, A17, A18, B9, B41, B42 and B47.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.records.codec import decode, encode_document, encode_line
from agentrun.records.event import Event
from agentrun.records.lease import Lease, Owner
from agentrun.records.message import Message
from agentrun.records.run import Run, accepted_run
from agentrun.records.session import Session

MESSAGE = {
    "seq": 2, "sessionId": "s1", "runId": "run-1", "role": "user", "mode": "steer", "text": "only new products",
    "at": "2026-01-02T03:04:05.678Z", "key": None, "actor": {"user": "ann", "host": "tea", "pid": 4121},
}  # fmt: skip
EVENT = {
    "sessionId": "s1", "runId": "run-7", "seq": 3, "type": "tool.started", "at": "2026-01-02T03:04:05.678Z",
    "generation": 1, "payload": {"operationId": "op-2"},
}  # fmt: skip
SESSION = {
    "formatVersion": 1, "sessionId": "s1", "accountId": "ann", "title": "T", "agent": None, "archived": False,
    "workingDirectory": "/w", "remoteIds": {"acp": "x"}, "forkedFrom": None, "createdAt": "2026-01-02T03:04:05.678Z",
    "updatedAt": "2026-01-02T03:04:05.678Z", "revision": 3,
}  # fmt: skip
LEASE = {
    "formatVersion": 1, "generation": 2,
    "owner": {"user": "ann", "host": "tea", "pid": 1, "startTime": 7, "bootId": "b", "pidNamespace": 3},
    "renewedAt": "2026-01-02T03:04:05.678Z", "expiresAt": "2026-01-02T03:04:20.678Z", "expiresBootSeconds": 12.5,
    "executingMs": 900,
}  # fmt: skip
ACCEPTED = {
    **EVENT,
    "seq": 1,
    "generation": 0,
    "type": "run.accepted",
    "payload": {"messageSeq": 1, "accountId": "ann"},
}
# Fields of a version to come, in places where this one has nothing.
EXTRA = {"zone": "Asia/Shanghai", "nested": {"list": [1, None, {"x": "\u2028"}]}, "big": 10**30}

KINDS: dict[str, tuple[dict[str, Any], Any]] = {
    "message": (MESSAGE, Message.from_doc),
    "event": (EVENT, Event.from_doc),
    "session": (SESSION, Session.from_doc),
    "lease": (LEASE, Lease.from_doc),
    "run": (accepted_run(Event.from_doc(ACCEPTED)).to_doc(), Run.from_doc),
}
JUNK = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
JUNK = JUNK | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_written_as_it_was_read_field_by_field_and_in_order(kind: str) -> None:
    doc, read = KINDS[kind]
    assert list(read(doc).to_doc()) == list(doc)
    assert read(doc).to_doc() == doc
    assert read(decode(encode_line(doc))) == read(doc)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lease"])
def test_fields_of_other_versions_survive_being_written_again(kind: str) -> None:
    doc, read = KINDS[kind]
    more = {**doc, **EXTRA}
    assert read(more).to_doc() == more
    assert read(decode(encode_document(read(more).to_doc()))) == read(more)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_field_of_any_type_makes_a_record_or_an_ordinary_error(kind: str, data: st.DataObject) -> None:
    doc, read = KINDS[kind]
    name = data.draw(st.sampled_from(sorted(doc)))
    changed = dict(doc)
    if data.draw(st.booleans()):
        changed[name] = data.draw(JUNK)
    else:
        del changed[name]
    try:
        record = read(changed)
    except ValueError:
        return
    # What is taken for a record can be written and is the same then.
    assert read(decode(encode_line(record.to_doc()))).to_doc() == record.to_doc()


@pytest.mark.parametrize("kind", ["message", "event"])
@pytest.mark.parametrize("seq", [0, -1, None, True, "1", 1.0, 1.5, [1]])
def test_a_line_without_a_number_is_none(kind: str, seq: object) -> None:
    doc, read = KINDS[kind]
    with pytest.raises(ValueError, match="seq"):
        read({**doc, "seq": seq})


@pytest.mark.parametrize(
    "run_id", ["", "..", "../x", "run-1/../../x", "/run-1", "run-0", "run-1\n", "run-1\0", "Run-1", "x", "run-1/", "."]
)
def test_a_message_of_a_run_that_cannot_be_one_is_damaged(run_id: str) -> None:
    """Case C21: a stored id is as foreign as a given one."""
    with pytest.raises(ValueError, match="runId"):
        Message.from_doc({**MESSAGE, "runId": run_id})


@pytest.mark.parametrize("role", ["", "User", "tool", None, 1, ["user"]])
def test_a_message_of_nobody_is_none(role: object) -> None:
    with pytest.raises(ValueError, match="role"):
        Message.from_doc({**MESSAGE, "role": role})


def test_a_user_s_message_is_an_input_and_no_other_is() -> None:
    assert Message.from_doc(MESSAGE).is_input
    assert not Message.from_doc({**MESSAGE, "role": "system"}).is_input
    assert not Message.from_doc({**MESSAGE, "role": "assistant"}).is_input


def test_an_owner_says_who_it_is() -> None:
    assert str(Owner.from_doc(LEASE["owner"])) == "ann@tea (pid 1)"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mode", "at", "key", "actor", "accept", "questionId"])
def test_a_message_with_a_field_of_another_type_is_none(name: str) -> None:
    # covers promise 2
    for wrong in (
        7,
        True,
        [],
        ["x"],
        {"user": 7} if name == "actor" else 1.5,
        "x" if name in ("actor", "accept") else {},
    ):
        with pytest.raises(ValueError, match=f"no message: {name} is of another type"):
            Message.from_doc({**MESSAGE, name: wrong})
    assert Message.from_doc({**MESSAGE, name: None})
