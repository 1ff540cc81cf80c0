"""Nothing that is stored reaches a terminal as a command, and columns are counted so that what fits, fits."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth

from agentrun.render import safe, theme
from agentrun.render.safe import columns_of, cut, escaped_in_json, excerpt, padded, shown, shown_line, tail

FAMILY = "👨\u200d👩\u200d👧"
# Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties.txt) that are not of category Cf.
IGNORABLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u3164\ufe00\ufe0f\uffa0\ufff0\U000e0100"
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_dangerous(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in IGNORABLE


DANGEROUS = [chr(point) for point in range(sys.maxunicode + 1) if is_dangerous(chr(point))]


def dangers_in(text: str, allowed: str = "") -> set[str]:
    return {character for character in text if is_dangerous(character) and character not in allowed}


def test_every_dangerous_character_is_shown_and_not_sent() -> None:
    assert len(DANGEROUS) > 2000
    for character in DANGEROUS:
        text = shown(f"a{character}b")
        assert dangers_in(text, allowed="\n\t") == set(), ascii(character)
        assert character in "\n\t" or text != "ab", ascii(character)
        assert dangers_in(shown_line(f"a{character}b")) == set(), ascii(character)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("bell\x07 nul\x00 del\x7f", r"bell\x07 nul\x00 del\x7f"),
        ("c1\x9b31m next\x85", r"c1\x9b31m next\x85"),
        ("a\u202eb", r"a\u202eb"),
        ("windows\r\n", "windows\\r\n"),
        ("\udce9 lone", r"\udce9 lone"),
        ("\u2028\u2029\ufeff\u200b", r"\u2028\u2029\ufeff\u200b"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("a\u200db", r"a\u200db"),
        ("tab\tand\nline", "tab\tand\nline"),
        (FAMILY, FAMILY),
        ("❤\ufe0f 1\ufe0f\u20e3", "❤\ufe0f 1\ufe0f\u20e3"),
        (f"{FAMILY}\u200d", f"{FAMILY}\\u200d"),
        ("Straße 中文 नमस्ते e\u0301", "Straße 中文 नमस्ते e\u0301"),
    ],
)
def test_what_is_shown(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_without_unicode_everything_is_ascii() -> None:
    assert shown("é 中 😀", unicode=False) == r"\xe9 \u4e2d \U0001f600"
    assert excerpt("é" * 100, 20, unicode=False).isascii()


def test_one_line_is_one_line() -> None:
    assert shown_line("a\nb\tc\x0b") == r"a\nb\tc\x0b"


@given(st.text(st.characters(), max_size=60))
def test_safe_text_is_safe_and_stays_so(text: str) -> None:
    safe = shown_line(text)
    assert dangers_in(safe, allowed="\u200d\ufe0f") == set()
    assert shown_line(safe) == safe


def joined(*parts: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts) | st.characters(), max_size=40).map("".join)


@given(joined("中", FAMILY, "❤\ufe0f", "e\u0301"))
def test_what_is_cut_fits(text: str) -> None:
    safe = shown_line(text)
    for columns in (0, 1, 2, 3, 10, 20):
        assert columns_of(cut(safe, columns)) <= columns
        assert columns_of(excerpt(text, columns)) <= columns
    assert cut(safe, columns_of(safe)) == safe


WRITINGS = [*"ab é中日ｱ한", FAMILY, "😀", "👍\U0001f3fd", "❤\ufe0f", "e\u0301", "🇩🇪"]


@given(st.lists(st.sampled_from(WRITINGS), max_size=40).map("".join))
def test_never_fewer_columns_are_counted_than_a_terminal_takes(text: str) -> None:
    assert columns_of(shown_line(text)) >= wcswidth(shown_line(text))


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("中文", 4), ("e\u0301", 1), ("😀", 2), ("❤\ufe0f", 2), ("ﾊﾛ", 2), ("", 0)],
)
def test_columns(text: str, columns: int) -> None:
    assert columns_of(text) == columns


def test_cutting_takes_no_half_characters() -> None:
    assert cut("中文标题", 8) == "中文标题"
    assert cut("中文标题", 7) == "中文标…"
    assert cut("中文标题", 6) == "中文…"
    assert cut(f"{FAMILY}{FAMILY}", 5) == "👨\u200d👩…"
    assert cut("abcdef", 5, unicode=False) == "ab..."


def test_our_own_signs_are_as_wide_as_the_tables_say() -> None:
    """They are known without the tables, which are slow to load."""
    marks = [*theme.RUN_MARKS.values(), *theme.OPERATION_MARKS.values(), theme.USER, theme.QUESTION, theme.NOTE]
    for sign in {*safe.NARROW_SIGNS} | {mark.sign for mark in marks}:
        assert sign.isascii() or sign in safe.NARROW_SIGNS, sign
        assert unicodedata.east_asian_width(sign) not in "WF", sign
        assert unicodedata.category(sign) not in ("Mn", "Me", "Cn"), sign


def test_padding_counts_columns() -> None:
    assert padded("中", 4) == "中  "


def test_an_excerpt_runs_white_space_together_and_reads_no_more_than_it_needs() -> None:
    assert excerpt("  one\n\n two\t three ", 80) == "one two three"
    assert excerpt("x" * 100_000_000, 10) == "xxxxxxxxx…"
    assert excerpt("e" + "\u0301" * 1_000_000, 10).startswith("e\u0301")


def test_the_tail_is_what_stands_last() -> None:
    assert tail("one\ntwo\nthree\n", 20, 2) == ["two", "three"]
    assert tail("abcdefghij", 4, 2) == ["efgh", "ij"]
    assert tail("中文标题", 5, 2) == ["中文", "标题"]
    assert tail("a\x1b[2J", 20, 1) == [r"a\x1b[2J"]
    assert tail("", 20, 2) == [""]
    assert len(tail("word " * 1_000_000, 20, 2)) == 2


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_means_the_same(text: str) -> None:
    line = json.dumps({text: text}, ensure_ascii=False)
    assert json.loads(escaped_in_json(line)) == {text: text}
    assert dangers_in(escaped_in_json(line)) == set()
