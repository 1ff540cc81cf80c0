"""The kinds of input, how long one may be, and what a prompt does when the slot is taken."""

from agentrun.errors import UsageError
from agentrun.lifecycle.routing import MODES, IfBusy

__all__ = ["MODES", "MOST_BYTES", "IfBusy", "check_length", "too_long"]

# Of one input: its line is read whole by everybody who looks at the session, and goes to the model whole.
MOST_BYTES = 64 * 1024 * 1024


def check_length(text: str) -> None:
    """Raises UsageError if `text` is longer than one input may be."""
    # Characters are counted first, and are bytes at least.
    if len(text) > MOST_BYTES or (not text.isascii() and _bytes_of(text) > MOST_BYTES):
        raise too_long()


def too_long() -> UsageError:
    """The error of a text that is longer than one input may be."""
    return UsageError(
        f"this text is too long: one input has {MOST_BYTES >> 20} MiB at most",
        hint="leave it in a file, and name that in the text for a tool that reads it",
    )


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
