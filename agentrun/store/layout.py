"""The names of everything in the tree; `docs/format.md` says what each of them holds."""

from __future__ import annotations

ACCOUNTS = "accounts"
SESSIONS = "sessions"
RUNS = "runs"

ACTIVITY = "activity.jsonl"
RESOURCES = "resources"
SHARED = "shared"

SESSION = "session.json"
MESSAGES = "messages.jsonl"
SUMMARY = "summary.json"
SUMMARY = "summary.json"
ACTIVE = "active"
KEYS = "keys"
ATTACHMENTS = "attachments"
STALE = "stale"

RUN = "run.json"
OPERATIONS = "operations.jsonl"
REPORT = "report.md"
DRAFT = "report.draft.md"
CANCEL = "cancel"
LEASE = "lease.json"
SCRATCH = "scratch"
BLOBS = "blobs"

# What is being made and has not its name yet; never a valid id, so no listing takes it for one.
UNFINISHED_PREFIX = ".new-"

# What has been removed and is not wholly gone yet; likewise.
REMOVED_PREFIX = ".gone-"


def torn_name(log: str, offset: int) -> str:
    """Where the bytes that an unfinished append left at `offset` of `log` are kept."""
    return f"{log}.torn-{offset}"


def damaged_name(name: str, offset: int) -> str:
    """Where a copy of the damaged bytes at `offset` of `name` is kept."""
    return f"{name}.damaged-{offset}"


def is_kept_aside(name: str) -> bool:
    """Whether `name` holds bytes that were kept beside their file."""
    return ".torn-" in name or ".damaged-" in name


def is_stale_of(name: str, run_id: str) -> bool:
    """Whether `name` is the `stale_name` of some generation of `run_id`."""
    begins, number, ends = name.partition(f"{run_id}.generation-")
    return bool(number) and not begins and ends.endswith(".jsonl") and ends.removesuffix(".jsonl").isdigit()


def stale_name(run_id: str, generation: int) -> str:
    """Where an executor of `generation` that was fenced out leaves what it still knew."""
    return f"{run_id}.generation-{generation}.jsonl"
