"""What a check found, one line each."""

from __future__ import annotations

from agentrun.records.finding import Finding
from agentrun.render.theme import Screen, Span, Style, line, say


def finding_text(finding: Finding, screen: Screen) -> str:
    """`PATH at byte N: KIND: what is so`, and whether it was put right."""
    where = say(finding.path, screen) + ("" if finding.offset is None else f" at byte {finding.offset}")
    kind = Span(finding.kind.value, Style.BAD if finding.is_wrong else Style.DIM)
    repaired = [Span("  repaired", Style.GOOD)] if finding.is_repaired else []
    return line([Span(f"{where}: "), kind, Span(f": {say(finding.said, screen)}"), *repaired], screen) + "\n"
