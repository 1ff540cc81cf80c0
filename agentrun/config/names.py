"""Names that nothing stands for."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` with the known name that `name` is nearest to, or nothing if none is near."""
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
