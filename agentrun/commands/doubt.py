"""What a command says that the disk refused half way: what was asked may be stored all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agentrun.errors import StorageFailed


@contextmanager
def maybe_stored(name: str, again: str) -> Iterator[None]:
    """Says of a refusal by the disk in the block that nobody knows whether it was stored, and where to look: `name`.

    A record may be whole on a disk that had no room for the next one, or did not say whether it lasts. `again` is how
    to ask for the same once more without doing it twice.
    """
    try:
        yield
    except StorageFailed as error:
        hint = f"it may be stored or not: look with: agentrun show {name}\nsee to that, then {again}"
        raise StorageFailed(error.message, hint=hint, session_id=error.session_id, run_id=error.run_id) from error
