"""The Markdown that models write, as HTML: headings, lists, tables, quotes, code, emphasis and links to the web.

What is not understood is shown as it stands. The text is a stranger's: its HTML is text, pictures are named and not
fetched, nesting has a limit, and no pattern looks twice at more than a bounded number of characters.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from agentrun.render.safe import shown

_DEEPEST = 8
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*)$")
_RULE = re.compile(r"^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_ITEM = re.compile(r"^( {0,12})([-*+]|[0-9]{1,9}[.)])( {1,4}|$)(.*)$")
_QUOTE = re.compile(r"^ {0,3}> ?(.*)$")
_RULE_CELL = re.compile(r":?-+:?")
_CELLS = re.compile(r"(?<!\\)\|")

_INLINE = re.compile(
    r"(?P<code>(?P<ticks>`{1,4})(?!`)(?P<inside>.{1,300}?)(?<!`)(?P=ticks)(?!`))"
    r"|(?P<picture>!)?\[(?P<label>[^\[\]]{0,500})\]\((?P<url>[^\s()]{1,1000})\)"
    r"|\*\*(?P<bold>\S.{0,300}?)(?<=\S)\*\*"
    r"|(?<![\w*])\*(?P<italic>[^\s*][^*]{0,300}?)(?<=\S)\*(?![\w*])"
    r"|\\(?P<escaped>[\\`*_{}\[\]()#+.!|>~-])"
)
_WEB = ("https://", "http://")


def markdown_html(text: str) -> str:
    """`text` as HTML that holds no markup but what is made here, and nothing that is fetched."""
    return "".join(_blocks(shown(text).split("\n"), 0))


def _blocks(lines: list[str], depth: int) -> Iterator[str]:
    at = 0
    while at < len(lines):
        for reads in _READERS if depth < _DEEPEST else _FLAT_READERS:
            made, after = reads(lines, at, depth)
            if after > at:
                yield made
                at = after
                break
        else:
            at += 1  # an empty line


def _code(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    fence = _FENCE.match(lines[at])
    if fence is None:
        return "", at
    end = next((n for n in range(at + 1, len(lines)) if _closes(lines[n], fence[1])), len(lines))
    inside = html.escape("\n".join(lines[at + 1 : end]))
    return f"<pre><code>{inside}</code></pre>\n", end + 1


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}


def _heading(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    heading = _HEADING.match(lines[at])
    if heading is None:
        return "", at
    level = len(heading[1])
    title = heading[2].rstrip(" \t#")
    return f"<h{level}>{_inline(title)}</h{level}>\n", at + 1


def _rule(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    return ("<hr>\n", at + 1) if _RULE.match(lines[at]) else ("", at)


def _table(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    if "|" not in lines[at] or at + 1 == len(lines) or not _is_table_rule(lines[at + 1]):
        return "", at
    end = next((n for n in range(at + 2, len(lines)) if "|" not in lines[n]), len(lines))
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in _cells(lines[at]))
    rows = "".join(
        f"<tr>{''.join(f'<td>{_inline(cell)}</td>' for cell in _cells(line))}</tr>\n" for line in lines[at + 2 : end]
    )
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}</table></div>\n', end


def _is_table_rule(line: str) -> bool:
    bare = line.lstrip(" ").rstrip(" \t")
    if bare.startswith("|") and line.startswith("    "):
        return False
    cells = bare.removeprefix("|").removesuffix("|").split("|")
    return all(_RULE_CELL.fullmatch(cell.strip(" \t")) for cell in cells)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _CELLS.split(line.strip().removeprefix("|").removesuffix("|"))]


def _quote(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    end = at
    inside = []
    while end < len(lines) and (quoted := _QUOTE.match(lines[end])):
        inside.append(quoted[1])
        end += 1
    return (f"<blockquote>\n{''.join(_blocks(inside, depth + 1))}</blockquote>\n", end) if inside else ("", at)


def _list(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    first = _ITEM.match(lines[at])
    if first is None or _RULE.match(lines[at]):
        return "", at
    is_numbered = first[2][0].isdigit()
    items = []
    end = at
    while end < len(lines) and (item := _ITEM.match(lines[end])) and item[2][0].isdigit() == is_numbered:
        inside, end = _item(lines, end, len(item[1]) + len(item[2]) + max(len(item[3]), 1), item[4])
        items.append(f"<li>{_item_html(inside, depth + 1)}</li>\n")
    begin = f'<ol start="{int(first[2][:-1])}">' if is_numbered else "<ul>"
    return f"{begin}\n{''.join(items)}</{'ol' if is_numbered else 'ul'}>\n", end


def _item(lines: list[str], at: int, indent: int, head: str) -> tuple[list[str], int]:
    """The lines of the item that begins at `at`, without their `indent`, and where the next one begins."""
    inside = [head]
    end = at + 1
    while end < len(lines):
        line = lines[end]
        is_within = line[:indent].isspace() and len(line) > indent
        if not is_within and (line.strip() or not _goes_on(lines, end, indent)):
            break
        inside.append(line[indent:] if is_within else "")
        end += 1
    return inside, end


def _goes_on(lines: list[str], at: int, indent: int) -> bool:
    """Whether what follows an empty line still belongs to the item."""
    return at + 1 < len(lines) and len(lines[at + 1]) > indent and lines[at + 1][:indent].isspace()


def _item_html(inside: list[str], depth: int) -> str:
    made = "".join(_blocks(inside, depth)).rstrip("\n")
    # An item of one paragraph is no paragraph.
    is_single = made.startswith("<p>") and made.count("<p>") == 1
    return made.replace("<p>", "", 1).replace("</p>", "", 1) if is_single else made


def _paragraph(lines: list[str], at: int, depth: int) -> tuple[str, int]:
    end = at
    while end < len(lines) and lines[end].strip() and (end == at or not _begins_block(lines[end])):
        end += 1
    if end == at:
        return "", at
    text = "<br>\n".join(_inline(line.strip()) for line in lines[at:end])
    return f"<p>{text}</p>\n", end


def _begins_block(line: str) -> bool:
    return any(each.match(line) for each in (_FENCE, _HEADING, _QUOTE, _ITEM))


_Reader = Callable[[list[str], int, int], tuple[str, int]]
_READERS: tuple[_Reader, ...] = (_code, _heading, _rule, _table, _quote, _list, _paragraph)
_FLAT_READERS: tuple[_Reader, ...] = (_paragraph,)


def _inline(text: str) -> str:
    pieces, at = [], 0
    for found in _INLINE.finditer(text):
        pieces.append(html.escape(text[at : found.start()]))
        pieces.append(_piece(found))
        at = found.end()
    return "".join(pieces) + html.escape(text[at:])


def _piece(found: re.Match[str]) -> str:
    if found["code"]:
        return f"<code>{html.escape(found['inside'].strip() or found['inside'])}</code>"
    if found["bold"]:
        return f"<strong>{_inline(found['bold'])}</strong>"
    if found["italic"]:
        return f"<em>{_inline(found['italic'])}</em>"
    if found["escaped"]:
        return html.escape(found["escaped"])
    label, url = html.escape(found["label"]), html.escape(found["url"], quote=True)
    if found["picture"] or not found["url"].lower().startswith(_WEB):
        return f"{'picture: ' if found['picture'] else ''}{label} ({url})"
    return f'<a href="{url}" title="{url}" rel="noreferrer noopener">{label or url}</a>'
