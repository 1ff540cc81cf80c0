"""Which failures of a model request another attempt may help with.

The one table is of HTTP statuses (RFC 9110, and what the providers say of theirs); an error inside a stream
comes with a word in place of a status.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

from agentrun.adapters.models.bounded import Unacceptable
from agentrun.adapters.models.settings import ModelSettings
from agentrun.agent.batch import the_one
from agentrun.agent.protocols import ModelFailed
from agentrun.config.secrets import without_secrets

# What another attempt may help with besides 5xx: the request took too long, met another one, or came too often.
_AGAIN = frozenset({408, 409, 425, 429})
_HINTS = {
    400: "the request is not what this endpoint takes",
    401: "the key is not accepted: check api_key_env or api_key_command",
    402: "the account has no credit left",
    403: "the key does not allow this",
    404: "there is no such model or address: check model and base_url",
    413: "the request is too long for this endpoint",
    422: "the request is not what this endpoint takes",
}
# Of an error inside a stream, as OpenAI-compatible servers and Anthropic name them.
_WORDS_FOR_GOOD = (
    "invalid_request",
    "authentication",
    "permission",
    "not_found",
    "insufficient_quota",
    "billing",
    "content_filter",
    "context_length",
    "request_too_large",
)
# Characters of a reason: as long as one in a record should be.
_LONGEST_REASON = 2000
# Seconds until a connection stands; a server that is there answers at once.
CONNECT_SECONDS = 15.0


# What comes through the SDKs as it is, alone or in a group of tasks. OverflowError: a port that is none.
_OTHERS = (ValueError, OverflowError, RecursionError, ExceptionGroup)


@contextmanager
def as_model_failures(sdk: Any, httpx: Any, settings: ModelSettings, url: str) -> Iterator[None]:
    """Raises ModelFailed, with the key taken out, for whatever the SDK raises. `url` is that of the endpoint."""
    try:
        yield
    except (sdk.APIError, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, *_OTHERS) as error:
        failure = _meaning(sdk, httpx, error, without_secrets(url), settings.silence)
    else:
        return
    # Cut only now: a key that was cut before would not be found any more.
    reason = settings.redact(failure.reason)[:_LONGEST_REASON]
    raise ModelFailed(reason, retryable=failure.retryable, retry_after=failure.retry_after) from None


def _meaning(sdk: Any, httpx: Any, error: Any, place: str, silence: float) -> ModelFailed:
    cause = _cause(error)
    if isinstance(cause, Unacceptable | OverflowError):
        return failed(f"{place}: {cause}", retryable=False)
    if isinstance(error, sdk.APIStatusError):
        # Anthropic's SDK raises an error that comes inside a stream with the status of that stream, 200.
        if error.status_code < 400:
            return of_stream_error(error.body, _said(error))
        return of_status(error.status_code, _said(error), error.response.headers)
    if isinstance(error, sdk.APITimeoutError | httpx.TimeoutException):
        return failed(f"{place} said nothing for {silence:g} s", retryable=True)
    if isinstance(error, sdk.APIConnectionError | httpx.HTTPError):
        return failed(f"the connection to {place} failed: {str(cause) or type(cause).__name__}", retryable=True)
    if isinstance(error, sdk.APIError):
        return of_stream_error(error.body, _said(error))
    if isinstance(error, json.JSONDecodeError):
        return failed("the stream is broken: what came is no JSON", retryable=True)
    if isinstance(error, RecursionError):
        return failed("the stream is broken: what came is nested too deep", retryable=True)
    return failed(f"{place}: {error}", retryable=False)


def _cause(error: Any) -> BaseException:
    """What the SDK's error stands for."""
    cause = error.__cause__ or error
    return the_one(cause) if isinstance(cause, BaseExceptionGroup) else cause


def _said(error: Any) -> str:
    """What the server says is wrong, without the SDK's words around it."""
    body = error.body
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else None
    return str(message or error.message)


def of_status(status: int, message: str, headers: Mapping[str, str]) -> ModelFailed:
    """What an answer with an error status means."""
    again = status in _AGAIN or status >= 500
    # A quota that is used up comes as 429, and no pause brings it back.
    if status == 429 and "insufficient_quota" in message:
        again = False
    hint = "" if again else _HINTS.get(status, "")
    text = f"HTTP {status}: {message}" + (f" ({hint})" if hint else "")
    return failed(text, retryable=again, retry_after=retry_after(headers) if again else None)


def of_stream_error(body: Any, message: str) -> ModelFailed:
    """What an error in the middle of a stream means: its own status or word says whether to try again."""
    error = body.get("error", body) if isinstance(body, dict) else {}
    error = error if isinstance(error, dict) else {}
    status = next((error[key] for key in ("status", "code") if type(error.get(key)) is int), None)
    if status is not None and 400 <= status < 600:
        return of_status(status, message, {})
    words = f"{error.get('type')} {error.get('code')}"
    return failed(
        f"the reply broke off with an error: {message}", retryable=not any(word in words for word in _WORDS_FOR_GOOD)
    )


def failed(reason: str, *, retryable: bool, retry_after: float | None = None) -> ModelFailed:
    """The failure."""
    return ModelFailed(reason, retryable=retryable, retry_after=retry_after)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or a date (RFC 9110)."""
    try:
        if "retry-after-ms" in headers:
            return _seconds(float(headers["retry-after-ms"]) / 1000)
        text = headers.get("retry-after", "")
        if not text:
            return None
        if text.replace(".", "", 1).isdigit():
            return _seconds(float(text))
        return _seconds(parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _seconds(number: float) -> float | None:
    return max(number, 0.0) if math.isfinite(number) else None
