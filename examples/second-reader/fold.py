"""The tables of docs/lifecycle.md and the fold of docs/format.md: what the events of a run make of it."""

from typing import Any

Record = dict[str, Any]

# lifecycle.md, "The table": status -> event -> what the status may become.
LEAVE = {"run.reconciling": ["reconciling"], "run.cancel_requested": ["cancelling"], "run.failing": ["cancelling"]}
NEXT: dict[str, dict[str, list[str]]] = {
    "queued": {"run.started": ["running"], "run.finished": ["cancelled"]},
    "running": {
        "run.waiting_input": ["waiting_input"],
        "run.compacting": ["compacting"],
        "run.finished": ["completed"],
        **LEAVE,
    },
    "waiting_input": {"run.input_received": ["running"], **LEAVE},
    "compacting": {"run.compacted": ["running"], **LEAVE},
    "reconciling": {"run.started": ["running"], "run.cancel_requested": ["cancelling"], "run.failing": ["cancelling"]},
    "cancelling": {"run.finished": ["cancelled", "timed_out", "failed"]},
}
OPEN = set(NEXT)
OVER = {"completed", "failed", "cancelled", "timed_out"}
# lifecycle.md, "Facts": event -> the statuses in which it is recorded.
FACTS = {
    "run.lease_acquired": OPEN,
    "run.lease_released": OPEN,
    "input.delivered": {"running"},
    "model.request.started": {"running", "compacting"},
    "model.request.finished": OPEN - {"queued"},
    "tool.registered": {"running"},
    "tool.started": {"running"},
    "tool.progress": OPEN - {"queued"},
    "tool.remote_id": OPEN - {"queued"},
    "tool.finished": OPEN - {"queued"},
    "run.child_announced": {"running", "waiting_input", "compacting"},
    "run.cancel_requested": {"queued", "cancelling"},
    "run.failing": {"cancelling"},
    "run.survivors_found": {"cancelling"},
    "run.reconciling": {"reconciling"},
    "operation.cancel_requested": OPEN - {"queued"},
    "operation.reconciled": OPEN | OVER,
    "operation.late_result": OPEN | OVER,
}
KNOWN = {"run.accepted", *FACTS, *(event for row in NEXT.values() for event in row)}
ENDINGS = {"timeout": "timed_out", "failure": "failed"}  # "Intents"; every other one leads to `cancelled`
# lifecycle.md, "Operations": what the status of an operation may become.
CERTAIN = ["succeeded", "failed", "cancelled"]
OPERATION_NEXT = {
    "pending": ["running", "cancelled", "skipped"],
    "running": ["pending", *CERTAIN, "timed_out", "unknown"],
    "failed": CERTAIN,
    "cancelled": CERTAIN,
    "timed_out": CERTAIN,
    "unknown": CERTAIN,
}
FINDINGS = {*CERTAIN, "timed_out", "unknown"}
STATUSES = FINDINGS | {"pending", "running", "skipped"}

USAGE = ("turns", "modelRequests", "toolCalls", "checks", "retries", "executingMs")
ACCEPTED = "accountId inputMode agent messageSeq references continues parentRun config timeout"
UNSET = (
    "startedAt timeoutAt cancelRequestedAt ending terminalStatus terminalAt reason leaseOwner leaseExpiresAt "
    "waitingFor report"
)
OPERATION = (
    "operationId turnId kind name effect resource idempotencyKey status attempt remoteId mayHaveEffects "
    "registeredAt startedAt finishedAt cancelRequestedAt error"
)


# format.md, "The fold": what an event behind damaged ones may tell of, looked for in this order.
BEFORE = ("running", "waiting_input", "compacting", "reconciling", "cancelling")


def next_status(status: str, kind: str, payload: Record) -> str | None:
    """What the status becomes by an event, or None where the event may not stand in it."""
    leads = NEXT.get(status, {}).get(kind, [])
    becomes = payload.get("terminalStatus") if kind == "run.finished" else leads[0] if leads else None
    if becomes in leads:
        return str(becomes)
    return status if kind not in KNOWN or status in FACTS.get(kind, ()) else None


def accepted_by(prompt: Record, account: str) -> Record:
    """What `run.accepted` says, from the line of the prompt that it follows from: no event yet, so it has number 0."""
    accept = prompt.get("accept") or {}
    payload = {name: accept.get(name) for name in ("agent", "timeout", "config", "parentRun", "continues")}
    payload |= {"messageSeq": prompt["seq"], "inputMode": prompt["mode"], "accountId": account}
    payload["references"] = accept.get("references") or []
    names = {name: prompt[name] for name in ("sessionId", "runId")}
    return names | {"seq": 0, "type": "run.accepted", "at": prompt.get("at"), "generation": 0, "payload": payload}


def is_open(operation: Record) -> bool:
    return operation["status"] in ("pending", "running")


def number_in(fields: Record, name: str) -> int | None:
    """A number, or nothing: a field of another type does not damage its line."""
    value = fields.get(name)
    return value if type(value) is int else None


class Fold:
    """One run, as its events tell it so far."""

    def __init__(self, accepted: Record) -> None:
        payload, at = accepted["payload"], accepted.get("at")
        self.run: Record = {"formatVersion": 1, "runId": accepted["runId"], "sessionId": accepted["sessionId"]}
        self.run |= {name: payload.get(name) for name in ACCEPTED.split()} | dict.fromkeys(UNSET.split())
        self.run |= {
            "status": "queued",
            "createdAt": at,
            "updatedAt": at,
            "generation": accepted["generation"],
            "force": False,
            "fenced": None,
        }
        self.run["children"] = []
        self.run |= {
            "deliveredInputs": [],
            "returnedInputs": [],
            "survivors": [],
            "attempts": 0,
            "appliedSeq": accepted["seq"],
        }
        self.usage: Record = dict.fromkeys(USAGE, 0) | dict.fromkeys(("inputTokens", "outputTokens", "costUsd"))
        self.operations: dict[str, Record] = {}  # all of them; the one that an event was about last is the last
        self.gone: set[str] = set()  # those that have ended and are not unresolved
        self.settled: set[str] = set()
        self.stops: list[Record] = []  # the intents, in order
        # Numbers that no event could be read for. The first is no loss: the prompt says the same.
        self.unread = 0 if accepted["seq"] else -1

    def snapshot(self) -> Record:
        """What run.json has to say."""
        listed = [one for name, one in self.operations.items() if name not in self.gone]
        unread = {"unreadEvents": self.unread} if self.unread > 0 else {}
        return (
            self.run
            | unread
            | {
                "usage": dict(self.usage),
                "openOperations": [dict(one) for one in listed if is_open(one)],
                "unresolvedOperations": [dict(one) for one in listed if not is_open(one)],
            }
        )

    def apply(self, event: Record) -> None:
        run, kind, payload = self.run, event["type"], event["payload"]
        if event["seq"] <= run["appliedSeq"]:
            return
        self.unread += event["seq"] - run["appliedSeq"] - 1
        run["appliedSeq"] = event["seq"]
        becomes = next_status(run["status"], kind, payload)
        if becomes is None and self.unread > 0 and run["status"] not in OVER:
            becomes = self._behind_damage(event)
        if becomes is None:
            return
        run["status"] = becomes
        run |= {"updatedAt": event.get("at"), "generation": max(run["generation"], event["generation"])}
        self._run_event(event, kind, payload)
        self._count(kind, payload)
        if kind.startswith(("tool.", "model.", "operation.")):
            self._operation_event(event, kind, payload)

    def _behind_damage(self, event: Record) -> str | None:
        """The status after an event that tells of another one before it than the events that can be read."""
        run, kind, payload = self.run, event["type"], event["payload"]
        before = next((status for status in BEFORE if next_status(status, kind, payload)), None)
        if before is None:
            return None
        run["startedAt"] = run["startedAt"] or event.get("at")
        run["waitingFor"] = run["waitingFor"] if before == "waiting_input" else None
        return next_status(before, kind, payload)

    def _run_event(self, event: Record, kind: str, payload: Record) -> None:
        run, at = self.run, event.get("at")
        if kind == "run.lease_acquired":
            run |= {"leaseOwner": payload.get("owner"), "leaseExpiresAt": payload.get("expiresAt")}
            run["fenced"] = payload.get("fenced")
            run["attempts"] = payload.get("attempt", 0)
        elif kind == "run.started":
            run |= {"startedAt": run["startedAt"] or at, "timeoutAt": payload.get("timeoutAt")}
        elif kind == "input.delivered":
            run["deliveredInputs"] = run["deliveredInputs"] + payload.get("messageSeqs", [])
        elif kind == "run.waiting_input":
            run |= {"waitingFor": payload, "timeoutAt": None}
        elif kind == "run.input_received":
            if (run["waitingFor"] or {}).get("kind") == "approval":
                run["deliveredInputs"] = [*run["deliveredInputs"], payload.get("messageSeq")]
            run |= {"waitingFor": None, "timeoutAt": payload.get("timeoutAt")}
        elif kind == "run.child_announced":
            told = {name: payload.get(name) for name in ("operationId", "sessionId", "afterSeq")}
            known = [(each["operationId"], each["sessionId"]) for each in run["children"]]
            if (told["operationId"], told["sessionId"]) not in known:
                run["children"] = [*run["children"], told]
        elif kind == "run.survivors_found":
            run["survivors"] = payload.get("survivors", [])
        elif kind == "run.reconciling":
            run["waitingFor"] = None
        elif kind in ("run.cancel_requested", "run.failing"):
            self.stops.append(event)
            run["force"] = run["force"] or payload.get("force") is True
            if run["ending"] is None:
                intent = "failure" if kind == "run.failing" else payload.get("intent")
                ending = ENDINGS.get(str(intent), "cancelled")
                run |= {"cancelRequestedAt": at, "ending": ending, "waitingFor": None}
                run["reason"] = payload.get("reason")
        elif kind == "run.finished":
            run |= {"terminalStatus": run["status"], "terminalAt": at, "waitingFor": None}
            run |= {"reason": payload.get("reason"), "report": payload.get("report")}
            run |= {"returnedInputs": payload.get("returnedInputs", []), "survivors": []}
        if kind in ("run.lease_released", "run.finished"):
            run |= {"leaseOwner": None, "leaseExpiresAt": None}

    def _count(self, kind: str, payload: Record) -> None:
        usage, first = self.usage, payload.get("attempt", 1) == 1
        if kind in ("model.request.started", "tool.started"):
            usage["modelRequests"] += kind == "model.request.started"
            is_check = self.operations.get(payload.get("operationId", ""), {}).get("kind") == "check"
            called = "checks" if is_check else "toolCalls"
            is_summary = kind == "model.request.started" and self.run["status"] == "compacting"
            if not is_summary:
                usage["turns" if kind == "model.request.started" else called] += first
            usage["retries"] += not first
        elif kind == "model.request.finished":
            for name in ("inputTokens", "outputTokens"):
                number = number_in(payload.get("usage") or {}, name)
                usage[name] = usage[name] if number is None else (usage[name] or 0) + number
            cost = (payload.get("usage") or {}).get("costUsd")
            if isinstance(cost, int | float) and not isinstance(cost, bool):
                usage["costUsd"] = round((usage["costUsd"] or 0) + cost, 9)
        elif kind in ("run.waiting_input", "run.lease_released", "run.finished"):
            usage["executingMs"] += number_in(payload, "executingMs") or 0

    def _operation_event(self, event: Record, kind: str, payload: Record) -> None:
        name = payload.get("operationId", "")
        if name not in self.operations:
            if kind in ("tool.registered", "model.request.started"):
                self.operations[name] = begin(event, payload)
            return
        one = self.operations[name] = self.operations.pop(name)
        finding = kind in ("operation.reconciled", "operation.late_result")
        if finding and name in self.gone:
            return
        changes = found(one, event, payload) if finding else told(one, event, payload)
        status = changes.get("status", one["status"])
        if status == one["status"] or status in OPERATION_NEXT.get(one["status"], []) or (finding and is_open(one)):
            one |= changes
            if finding and changes and status != "unknown":
                self.settled.add(name)
        half_way = one["effect"] == "write" and one["mayHaveEffects"] and name not in self.settled
        if not is_open(one) and one["status"] != "unknown" and not half_way:
            self.gone.add(name)


def begin(event: Record, payload: Record) -> Record:
    """An operation as its first event has it."""
    one = {name: payload.get(name) for name in OPERATION.split()}
    one |= {"registeredAt": event.get("at"), "mayHaveEffects": False}
    if event["type"] == "tool.registered":
        called = "check" if isinstance(payload.get("check"), dict) else "tool"
        return one | {"kind": called, "name": payload.get("toolName"), "status": "pending", "attempt": 0}
    return one | {"kind": "model", "name": payload.get("model"), "status": "running", "startedAt": event.get("at")}


def told(one: Record, event: Record, payload: Record) -> Record:
    """What an event of the executor says about an operation."""
    kind, error = event["type"], payload.get("error")
    if kind == "operation.cancel_requested":
        return {"cancelRequestedAt": one["cancelRequestedAt"] or event.get("at")}
    if kind == "tool.remote_id":
        return {"remoteId": payload.get("remoteId")}
    if kind in ("tool.started", "model.request.started"):
        return {
            "status": "running",
            "attempt": payload.get("attempt"),
            "startedAt": one["startedAt"] or event.get("at"),
        }
    if kind not in ("tool.finished", "model.request.finished"):
        return {}
    if payload.get("willRetry"):
        return {"status": "pending", "error": error}
    status = payload.get("status") if payload.get("status") in STATUSES else "unknown"
    may_have_effects = payload.get("mayHaveEffects", False)
    return {"status": status, "finishedAt": event.get("at"), "error": error, "mayHaveEffects": may_have_effects}


def found(one: Record, event: Record, payload: Record) -> Record:
    """What a later finding says about an operation."""
    status = payload.get("status")
    if status not in FINDINGS and not (status == "skipped" and one["status"] == "pending"):
        return {}
    changes: Record = {"status": status, "finishedAt": one["finishedAt"] or event.get("at")}
    if is_open(one):
        changes |= {"error": payload.get("error"), "mayHaveEffects": payload.get("mayHaveEffects", False)}
    return changes
