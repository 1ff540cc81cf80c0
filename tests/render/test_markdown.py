"""The Markdown of models as HTML: what is understood, and that nothing gets through that was not made here."""

import html.parser
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.render.markdown import markdown_html

MADE_HERE = {"p", "br", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "pre", "code", "ul", "ol", "li", "blockquote"} | {
    *("strong", "em", "a", "div", "table", "tr", "th", "td")
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain & <b>", "<p>plain &amp; &lt;b&gt;</p>\n"),
        ("one\ntwo\n\nthree", "<p>one<br>\ntwo</p>\n<p>three</p>\n"),
        ("## A `b` c ##", "<h2>A <code>b</code> c</h2>\n"),
        ("#no heading", "<p>#no heading</p>\n"),
        ("a **b *c* d** _e_ 2*3*4", "<p>a <strong>b <em>c</em> d</strong> _e_ 2*3*4</p>\n"),
        ("```py\nif a < b:\n    ok\n```\nafter", "<pre><code>if a &lt; b:\n    ok</code></pre>\n<p>after</p>\n"),
        ("````\n```\n````", "<pre><code>```</code></pre>\n"),
        ("``` no end", "<pre><code></code></pre>\n"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
        ("3. a\n4. b", '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>\n'),
        ("- a\n  - b\n- c", "<ul>\n<li>a\n<ul>\n<li>b</li>\n</ul></li>\n<li>c</li>\n</ul>\n"),
        ("> a\n> b", "<blockquote>\n<p>a<br>\nb</p>\n</blockquote>\n"),
        ("---", "<hr>\n"),
        ("a\\*b\\*", "<p>a*b*</p>\n"),
        ("", ""),
    ],
)
def test_what_is_understood(text: str, expected: str) -> None:
    assert markdown_html(text) == expected


def test_a_table() -> None:
    made = markdown_html("| a | b \\| c |\n|---|--:|\n| 1 | **2** |\n\nafter")
    assert "<tr><th>a</th><th>b | c</th></tr>" in made
    assert "<tr><td>1</td><td><strong>2</strong></td></tr>" in made
    assert made.endswith("<p>after</p>\n")


def test_only_links_to_the_web_are_links_and_pictures_are_named() -> None:
    made = markdown_html("[a](https://x.org/?a=1&b=2) ![p](https://x.org/p.png) [b](javascript:alert) [c](data:x)")
    assert re.findall(r'href="([^"]*)"', made) == ["https://x.org/?a=1&amp;b=2"]
    assert "picture: p (https://x.org/p.png)" in made
    assert "b (javascript:alert)" in made
    assert "<img" not in made


def test_control_characters_are_shown() -> None:
    assert markdown_html("a\x1b[2J\u202eb\x00") == "<p>a\\x1b[2J\\u202eb\\x00</p>\n"


class _Tags(html.parser.HTMLParser):
    """Whether every element was made here, and ends where it should."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in MADE_HERE
        assert {name for name, _ in attrs} <= {"href", "title", "rel", "class", "start"}
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


PIECES = (
    *("<script>", "</p>", "<!--", '"', "'", "&lt;", "**", "*", "`", "```", "\n", "\n\n", "- ", "1. ", "> ", "# "),
    *("| ", "|-|", "[a](", "](https://", ")", "![", "  ", "\t", "\\", "\x1b", "\u202e", "a b", "~~~"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_whatever_is_written_nothing_gets_out_of_its_element(text: str) -> None:
    tags = _Tags()
    tags.feed(markdown_html(text))
    tags.close()
    assert not tags.open


@pytest.mark.parametrize("piece", ["*", "**", "**a ", "[", "`", "``a", "> ", "- ", "  - a\n", "|", "\\", "![a]("])
def test_no_text_takes_longer_than_its_length_deserves(piece: str) -> None:
    # What grows with the square of the length would outlast every limit here.
    assert markdown_html(piece * (100_000 // len(piece)))


# Where a line begins as one thing, and turns out in the end to be another one.
ENDLESS = ("# " + "#" * 300_000, "# a" + " " * 300_000, "|\n-" + " " * 300_000, "|\n" + "|-" * 150_000, "- " * 150_000)


@pytest.mark.slow
@pytest.mark.parametrize("line", ENDLESS, ids=range(len(ENDLESS)))
def test_nor_does_a_line_that_is_not_what_it_seemed_to_be(line: str) -> None:
    # covers promise 16: with the square of the length, each would take minutes.
    assert "x" in markdown_html(line + "x")


@given(st.text(alphabet=" \t|-:x", max_size=12))
def test_what_stands_below_the_head_of_a_table(line: str) -> None:
    is_one = bool(re.match(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$", line))
    assert ("<table>" in markdown_html(f"|a|\n{line}\n|b|")) is is_one
