"""Talks to the export service at `$EXPORT_SERVICE`; the tools beside this file use it."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

# A service that does not answer is not waited for: whoever asks tries again, or says that it cannot tell.
PATIENCE = 2.0


class Unreachable(Exception):
    """The service gave no answer. `was_sent`: it may have got the request, and what became of that is not known."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.was_sent = not isinstance(getattr(error, "reason", error), ConnectionRefusedError)


def ask(path: str, body: dict[str, Any] | None = None, *, post: bool = False) -> dict[str, Any] | None:
    """The service's answer; None if it knows of no such job. Raises Unreachable."""
    url = os.environ.get("EXPORT_SERVICE", "http://127.0.0.1:8765") + path
    data = json.dumps(body or {}).encode() if post else None
    try:
        with urlopen(Request(url, data), timeout=PATIENCE) as answer:
            return dict(json.load(answer))
    except HTTPError as error:
        if error.code == 404:
            return None
        raise Unreachable(error) from error
    except (OSError, ValueError) as error:
        raise Unreachable(error) from error


def find(remote_id: str | None, key: str) -> dict[str, Any] | None:
    """The job by its id, or by the key of the action where the id was never told."""
    return ask(f"/jobs/{remote_id}") if remote_id else ask(f"/jobs?key={quote(key)}")
