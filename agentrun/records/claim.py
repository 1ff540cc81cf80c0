"""A claim on a resource outside, as it lies in the account's `resources/`."""

from __future__ import annotations

from agentrun import ids
from agentrun.named import NamedTuple
from agentrun.records.codec import FORMAT_VERSION, Doc
from agentrun.records.operation import Operation


class Claim(NamedTuple):
    """Which write has a resource. A hint: whether it still has it, the record of its run tells.

    `idempotency_key` is the action's own: a session that was removed may have had the same name.
    """

    resource: str
    session_id: str
    run_id: str
    operation_id: str
    tool_name: str
    idempotency_key: str | None
    at: str

    def is_of(self, session_id: str, run_id: str, operation: Operation) -> bool:
        """Whether that operation made it."""
        mine = (session_id, run_id, operation.operation_id, operation.idempotency_key)
        return mine == (self.session_id, self.run_id, self.operation_id, self.idempotency_key)

    def to_doc(self) -> Doc:
        """The fields in the order they are stored."""
        return {
            "formatVersion": FORMAT_VERSION,
            "resource": self.resource,
            "sessionId": self.session_id,
            "runId": self.run_id,
            "operationId": self.operation_id,
            "toolName": self.tool_name,
            "idempotencyKey": self.idempotency_key,
            "at": self.at,
        }

    @classmethod
    def from_doc(cls, doc: Doc) -> Claim:
        """The claim in a decoded document. Raises ValueError if it is none."""
        names = ("resource", "sessionId", "runId", "operationId", "toolName", "at")
        resource, session_id, run_id, operation_id, tool_name, at = (doc.get(name) for name in names)
        key = doc.get("idempotencyKey")
        if not (
            isinstance(session_id, str) and ids.is_id(session_id) and isinstance(run_id, str) and ids.is_id(run_id)
        ):
            raise ValueError("names no run")
        if not (isinstance(operation_id, str) and isinstance(resource, str) and (key is None or isinstance(key, str))):
            raise ValueError("names no operation")
        return cls(resource, session_id, run_id, operation_id, str(tool_name), key, str(at))


def file_name(resource: str) -> str:
    """The name of the claim's file: that of the resource, where it is one, else its hash."""
    if ids.is_id(resource):
        return resource
    import hashlib

    return "_" + hashlib.sha256(resource.encode("utf-8", "surrogatepass")).hexdigest()
