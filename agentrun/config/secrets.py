"""What of a configuration is nobody's business, and how it is shown without: the values, and texts that repeat them.

Servers and programs repeat what they were given in what they say is wrong. What they say is recorded, so it is looked
through for the secrets that they had, in each form in which a program writes a text into a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REDACTED = "[redacted]"
# Shorter texts stand in many words; replacing them would hide what is said and protect nothing.
SHORTEST_SECRET = 6

# Of a key in a table, and of an option in a command: what it is called says that its value is nobody's business.
_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|auth")
_SECRET_OPTION = re.compile(r"(?is)^(-{0,2}[\w.-]*(?:key|token|secret|passw|credential|auth)[\w.-]*[=:]\s*).+$")
# Of an address, a user with a password, also where the rest of it is wrong; a port is none.
_PASSWORD = re.compile(r"(^|/)[^/?#@]+:(?!//|\d+(?:/|$))\S*@")
# And a parameter likewise.
_SECRET_PARAMETER = re.compile(r"(?i)([?&;][^=&#;]*(?:key|token|secret|passw|credential|auth|sig)[^=&#;]*=)([^&#;]+)")
# What these tables hold is handed to other programs, and mostly there because it is secret.
_ALL_SECRET = ("env", "headers")
# These say where a secret is, not what it is.
_NO_SECRETS = ("api_key_env", "max_tokens", "max_output_tokens", "compact_above_tokens", "author")


def redacted(key: str, value: Any) -> Any:
    """`value` without what may be secret in it; `key` is its name."""
    if key in _ALL_SECRET:
        return dict.fromkeys(value, REDACTED) if isinstance(value, Mapping) else value and REDACTED
    if isinstance(value, Mapping):
        return {name: redacted(str(name), each) for name, each in value.items()}
    if key == "api_key_command" and isinstance(value, list | tuple):
        # It may print the secret itself.
        return [*value[:1], *([REDACTED] if value[1:] else [])]
    if is_secret_name(key) and isinstance(value, str):
        return REDACTED
    if isinstance(value, list | tuple):
        return _redacted_words(value)
    return _redacted_text(value) if isinstance(value, str) else value


def is_secret_name(name: str) -> bool:
    """Whether what is called so is nobody's business."""
    return _SECRET_NAME.search(name) is not None and name not in _NO_SECRETS


def _redacted_words(words: list[Any] | tuple[Any, ...]) -> list[Any]:
    """The words of a command: `--token X` hides X, and `--token=X` too."""
    shown: list[Any] = []
    hides_next = False
    for word in words:
        shown.append(REDACTED if hides_next else redacted("", word))
        hides_next = (
            isinstance(word, str) and word.startswith("-") and "=" not in word and bool(_SECRET_NAME.search(word))
        )
    return shown


def _redacted_text(text: str) -> str:
    return _SECRET_OPTION.sub(rf"\g<1>{REDACTED}", without_secrets(text))


def without_secrets(url: str) -> str:
    """The address without a user's name and password, and without what its parameters say of a key."""
    from urllib.parse import urlsplit

    with suppress(ValueError):
        parts = urlsplit(url)
        if "@" in parts.netloc:
            url = parts._replace(netloc=f"{REDACTED}@{parts.netloc.rpartition('@')[2]}").geturl()
    url = _PASSWORD.sub(rf"\g<1>{REDACTED}@", url)
    return _SECRET_PARAMETER.sub(rf"\g<1>{REDACTED}", url)


def secrets_of(url: str | None) -> Iterator[str]:
    """What `without_secrets` takes out of an address, each secret by itself, and as HTTP sends it to its server."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit

    with suppress(ValueError):
        user, at, _ = urlsplit(url or "").netloc.rpartition("@")
        if at:
            password = user.partition(":")[2] or user
            yield from (password, unquote(password), b64encode(unquote(user).encode()).decode())
    for match in _SECRET_PARAMETER.finditer(url or ""):
        yield from (match[2], unquote(match[2]))


def hidden(text: str, secrets: Iterable[str | None]) -> str:
    """`text` without the secrets, in whichever form a program has written them into it."""
    forms = {form for secret in secrets if secret for form in _forms(secret) if len(form) >= SHORTEST_SECRET}
    # The longest first: what is left of one in which another stands would still tell the rest of it.
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, REDACTED)
    return text


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is, and as the messages of programs quote it: Python's, JSON's, and those about addresses."""
    import json
    from urllib.parse import quote, quote_plus

    whole = secret.encode("utf-8", "surrogateescape")
    yield from (secret, secret.strip())
    yield from (repr(secret)[1:-1], repr(whole)[2:-1], ascii(secret)[1:-1])
    in_json = json.dumps(secret)[1:-1]
    # Of a server that passes on what another one answered, its JSON in a text of its own.
    yield from (in_json, json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(in_json)[1:-1])
    yield from (quote(whole, safe=""), quote(whole), quote_plus(whole))
