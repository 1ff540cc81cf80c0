"""What of a configuration is nobody's business, and how it is shown without."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentrun.adapters.models.settings import REDACTED, without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of a key in a table, and of an option in a command: what it is called says that its value is nobody's business.
_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|auth")
_SECRET_OPTION = re.compile(r"(?is)^(-{0,2}[\w.-]*(?:key|token|secret|passw|credential|auth)[\w.-]*[=:]\s*).+$")
# What these tables hold is handed to other programs, and mostly there because it is secret.
_ALL_SECRET = ("env", "headers")
# These say where a secret is, not what it is.
_NO_SECRETS = ("api_key_env", "max_tokens", "max_output_tokens", "compact_above_tokens", "author")


def redacted(key: str, value: Any) -> Any:
    """`value` without what may be secret in it; `key` is its name."""
    if key in _ALL_SECRET and isinstance(value, Mapping):
        return dict.fromkeys(value, REDACTED)
    if isinstance(value, Mapping):
        return {name: redacted(str(name), each) for name, each in value.items()}
    if key == "api_key_command":
        # It may print the secret itself.
        return [*value[:1], *([REDACTED] if value[1:] else [])]
    if _SECRET_NAME.search(key) and key not in _NO_SECRETS and isinstance(value, str):
        return REDACTED
    if isinstance(value, list | tuple):
        return _redacted_words(value)
    return _redacted_text(value) if isinstance(value, str) else value


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
