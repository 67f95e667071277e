"""Replies in Markdown, in a real browser: what is no Markdown is shown as it was written."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page

from tests.web.stage import HOSTILE, Served

pytestmark = pytest.mark.anyio

# Writes a text in pieces of each size, then as a whole; returns what is drawn if that is one thing.
DRAW = """async ([text, sizes]) => {
  const { MarkdownWriter } = await import("/web/markdown.js");
  const drawn = sizes.map((size) => {
    const root = document.createElement("div");
    const writer = new MarkdownWriter(root);
    for (let at = size; size && at < text.length + size; at += size) {
      writer.write(text.slice(0, at), false);
    }
    writer.write(text, true);
    root.querySelectorAll(".box").forEach((each) => {
      each.replaceWith(each.querySelector("pre, table"));
    });
    root.querySelectorAll("a").forEach((each) => {
      each.removeAttribute("target");
      each.removeAttribute("rel");
    });
    return root.innerHTML;
  });
  return [...new Set(drawn)];
}"""
SIZES = [0, 1, 2, 3, 5, 7, 11]

AS_WRITTEN = [
    "See [1] and array[0] and [x] and [ ] and a[i][j].",
    "snake_case_word, a_b_c, __a and _b, 2_000",
    "2 * 3 * 4, 5*3 = 15 and 2*2, a ** b, **open",
    "$5 and $6, $x^2$, $$y$$, ~50 and ~60, H~2~O",
    "[note]: not a link, [a](b), [c](/api/me), ![d](e)",
    "[bad](javascript:alert(1)) ![bad](data:text/html,x)",
    "one ` backtick, :smile:, #tag, <b>bold</b>, a < b, http://, hh",
    '<a href="https://x.org">',
    "|x| is the size of x",
    "-5 degrees, 3.5 and 1) first",
]
DRAWN = {
    "**b** *i* _i_ __b__ ~~s~~ ***x***": (
        "<strong>b</strong> <em>i</em> <em>i</em> <strong>b</strong> <s>s</s> "
        "<em><strong>x</strong></em>"
    ),
    "**a *b* _c_** and *a **b***": (
        "<strong>a <em>b</em> <em>c</em></strong> and <em>a <strong>b</strong></em>"
    ),
    "**two\nlines** [x]\nend": "<strong>two<br>lines</strong> [x]<br>end",
    "`a[0] _b_ *c*` and ``d`e``": "<code>a[0] _b_ *c*</code> and <code>d`e</code>",
    r"\[escaped\] \*a\* \_b\_ C:\dir": r"[escaped] *a* _b_ C:\dir",
    '[a [1] *b*](https://x.org/a_(b) "T").': (
        '<a href="https://x.org/a_(b)">a [1] <em>b</em></a>.'
    ),
    "![pic](https://x.org/a.png) <https://x.org> [m](mailto:a@x.org)": (
        '<a href="https://x.org/a.png">pic</a> <a href="https://x.org">https://x.org</a> '
        '<a href="mailto:a@x.org">m</a>'
    ),
    "(see https://x.org/a_b_c), **https://x.org/d**. https://x.org.": (
        '(see <a href="https://x.org/a_b_c">https://x.org/a_b_c</a>), '
        '<strong><a href="https://x.org/d">https://x.org/d</a></strong>. '
        '<a href="https://x.org">https://x.org</a>.'
    ),
}
BLOCKS = {
    "# A [0] b_c_d\ntext": '<h1 aria-level="3">A [0] b_c_d</h1><p>text</p>',
    "- [ ] open\n- [x] done [1]\n- **a**: b": (
        '<ul><li><input type="checkbox" disabled=""> open</li>'
        '<li><input type="checkbox" disabled="" checked=""> done [1]</li>'
        "<li><strong>a</strong>: b</li></ul>"
    ),
    "* one *x\n* two\n  - in_ner_\n\n3. three": (
        "<ul><li>one *x</li><li>two<ul><li>in_ner_</li></ul></li></ul>"
        '<ol start="3"><li>three</li></ol>'
    ),
    "| a_b_ | [1] |\n|---|---|\n| 1* | `x|y` *z* |\nafter": (
        "<table><thead><tr><th> a_b_ </th><th> [1] </th></tr></thead>"
        "<tbody><tr><td> 1* </td><td> <code>x|y</code> <em>z</em> </td></tr>"
        "</tbody></table><p>after</p>"
    ),
    "```python\nx = [1, 2]\n  _y_ = `z`\n```\n[1]": (
        "<pre><code>x = [1, 2]\n  _y_ = `z`</code></pre><p>[1]</p>"
    ),
    "a\n\n    b[0] = *c*\n\n> q [1] _r_\n\n---\nend": (
        "<p>a</p><pre><code>b[0] = *c*</code></pre><blockquote><p>q [1] <em>r</em></p></blockquote>"
        "<hr><p>end</p>"
    ),
}


@pytest.fixture
async def page(browser: Browser, site: Served) -> AsyncIterator[Page]:
    context = await browser.new_context()
    opened = await context.new_page()
    await opened.goto(f"{site.address}/")
    yield opened
    await context.close()


async def test_what_is_no_markdown_is_shown_as_written(page: Page) -> None:
    """Brackets, stars and underscores stay, in pieces of any size."""
    for text in AS_WRITTEN:
        drawn = await page.evaluate(DRAW, [text, SIZES])
        shown = text.replace("<", "&lt;").replace(">", "&gt;")
        assert drawn == [f"<p>{shown}</p>"]


async def test_markdown_is_drawn_in_pieces_of_any_size(page: Page) -> None:
    """Emphasis, code, links and addresses inside a paragraph, and the blocks around them."""
    for text, shown in DRAWN.items():
        assert await page.evaluate(DRAW, [text, SIZES]) == [f"<p>{shown}</p>"]
    for text, shown in BLOCKS.items():
        assert await page.evaluate(DRAW, [text, SIZES]) == [shown]
    everything = "\n\n".join([*AS_WRITTEN, *DRAWN, *BLOCKS, HOSTILE])
    assert len(await page.evaluate(DRAW, [everything, SIZES])) == 1


async def test_a_text_is_whole_while_it_streams(page: Page) -> None:
    """What more text decides is shown as written until then."""
    show = """async (text) => {
      const { MarkdownWriter } = await import("/web/markdown.js");
      const root = document.createElement("div");
      const writer = new MarkdownWriter(root);
      writer.write(text.slice(0, 5), false);
      writer.write(text, false);
      return root.innerHTML;
    }"""
    for text in ("See [1", "See **bold", "See [a](https://x.o", "See https://x.org/a", "See `co"):
        assert await page.evaluate(show, text) == f"<p>{text}</p>"
    assert await page.evaluate(show, "- See **bold") == "<ul><li>See **bold</li></ul>"
    assert await page.evaluate(show, "See **b** [1] _c") == "<p>See <strong>b</strong> [1] _c</p>"
