"""Every deliberate error, as one tree; each class is one decision its receiver can take.

    AgentrunError
    ├── UsageError              2  usage
    ├── Conflict                7  conflict
    │   ├── SlotTaken              another run of the session is active
    │   ├── RunEnded               the run ended before the input came
    │   ├── OperationOver          the operation ended before its cancel came
    │   ├── SeqDiffers             --expect-seq or --expect-revision does not hold
    │   ├── KeyReused              the key was used with another text
    │   ├── ImpossibleMode         this kind of input does not fit the run's status
    │   ├── TransitionRefused      the table in `states` does not allow the event now
    │   ├── NameTaken              a session of that name exists
    │   ├── Unresolved             an operation would be forgotten of which nobody knows what it did
    │   ├── SessionHeld            its lock is held by an executor that does not respond
    │   ├── LockHeld               its lock is held by some other process that does not let go
    │   ├── HeldBack               the run cannot go on before something is settled
    │   └── NotEnded               the run stays cancelling: something of it cannot be ended
    ├── NotFound                8  not_found
    │   └── Ambiguous              several sessions match
    ├── Denied                  9  denied
    │   └── NewerFormat            a newer agentrun wrote it: this one reads what it can, and does not write
    ├── CorruptRecord          10  damaged
    ├── StorageFailed          11  storage
    │   └── TooManyOpen            too many files are open: that says nothing of what is on disk
    ├── FencedOut              12  fenced
    ├── ConfigError            13  config
    └── TimeRanOut            124  timeout

`EXIT_CODES` is the one table of exit codes; the endings of a run have their codes in it as well. `exit_table` is what
`--help`, the manual page and the docs are made from.
"""

from __future__ import annotations

# The words are public: they stand in `{"error": {"code": ...}}` and in `--help`.
EXIT_CODES = {
    "failed": 1,
    "usage": 2,
    "cancelled": 3,
    "timed_out": 4,
    "waiting_input": 5,
    "not_over": 6,
    "conflict": 7,
    "not_found": 8,
    "denied": 9,
    "damaged": 10,
    "storage": 11,
    "fenced": 12,
    "config": 13,
    "internal": 70,
    "timeout": 124,
}

EXIT_MEANINGS = {
    "failed": "the run failed",
    "usage": "wrong usage",
    "cancelled": "the run was cancelled by someone else",
    "timed_out": "the run timed out",
    "waiting_input": "the run waits for input",
    "not_over": "accepted, not over: still cancelling, executor lost, reconciling",
    "conflict": "slot taken, run ended otherwise, sequence differs, key with other text, impossible mode, name taken",
    "not_found": "not found, ambiguous, or another account's",
    "denied": "permission denied, or a path or id that is not allowed",
    "damaged": "damaged data, with path and byte offset",
    "storage": "disk full, read-only, I/O error, with path and errno",
    "fenced": "another executor took this run over",
    "config": "no such agent, no model, no key, configuration gone",
    "internal": "a bug of agentrun",
    "timeout": "the time given for waiting ran out",
}


def exit_table() -> list[tuple[str, str, str]]:
    """Every exit code with its word and its meaning, in order; those without a word are no errors, or a signal's."""
    return [
        ("0", "", "done; of send and show -f: the run completed"),
        *((str(code), word, EXIT_MEANINGS[word]) for word, code in EXIT_CODES.items()),
        ("129, 130, 143", "", "ended by SIGHUP, SIGINT, SIGTERM"),
    ]


class AgentrunError(Exception):
    """One sentence saying what happened and where; `hint` says what to type next, if anything helps.

    `session_id` and `run_id` name what the error is about, for scripts.
    """

    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.session_id = session_id
        self.run_id = run_id

    @property
    def exit_code(self) -> int:
        """The process exit code that belongs to this error."""
        return EXIT_CODES[self.code]


class UsageError(AgentrunError):
    """The command line, a duration or a text cannot be used as given."""

    code = "usage"


class Conflict(AgentrunError):
    """The state of the session or run does not allow what was asked; nothing was written."""

    code = "conflict"


class SlotTaken(Conflict):
    """Another run of the session is active."""


class RunEnded(Conflict):
    """The run has ended, so it can take no further input and no cancel."""


class OperationOver(Conflict):
    """The operation has ended, so it cannot be cancelled any more."""


class SeqDiffers(Conflict):
    """The session is not at the sequence number or revision that the caller expected."""


class KeyReused(Conflict):
    """The idempotency key was used before, with another text."""


class ImpossibleMode(Conflict):
    """This kind of input does not fit the status of the run."""


class TransitionRefused(Conflict):
    """The table in `states` has no such event in this status."""


class NameTaken(Conflict):
    """A session of that name exists already."""


class Unresolved(Conflict):
    """Operations of which nobody knows what they did outside would be forgotten."""


class SessionHeld(Conflict):
    """The session's lock is held by an executor that does not respond; it has to be ended first."""


class LockHeld(Conflict):
    """The session's lock is held by a process that is no executor and does not let go; it is named if it can be."""


class HeldBack(Conflict):
    """The run is not continued: an operation of it is unknown, or a process of it cannot be ended."""


class NotEnded(Conflict):
    """The run stays `cancelling`: something of it is alive and cannot be ended; its `survivors` name that."""


class NotFound(AgentrunError):
    """No such session or run; another account's are reported in the same words."""

    code = "not_found"


class Ambiguous(NotFound):
    """Several sessions match the name; `candidates` lists their ids."""

    def __init__(self, message: str, candidates: list[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.candidates = candidates


class Denied(AgentrunError):
    """Permission denied, or an id or path that must not be used."""

    code = "denied"


class NewerFormat(Denied):
    """A document is of a newer format, or of one that is none: it may be read as far as it can be, and not written."""


class CorruptRecord(AgentrunError):
    """Stored bytes at `path` from `offset` are not a record."""

    code = "damaged"

    def __init__(self, message: str, *, path: str, offset: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.offset = offset


class StorageFailed(AgentrunError):
    """The disk refused: full, read-only, too many files, or an I/O error."""

    code = "storage"


class TooManyOpen(StorageFailed):
    """This process, or the machine, has as many files open as it may: what is on disk was not looked at."""


class FencedOut(AgentrunError):
    """A newer generation holds the run's lease; this process may write nothing more into the run."""

    code = "fenced"


class ConfigError(AgentrunError):
    """The configuration does not give what is needed: agent, model, tool, key or file."""

    code = "config"


class TimeRanOut(AgentrunError):
    """The time that the caller gave for waiting ran out; the run goes on."""

    code = "timeout"
