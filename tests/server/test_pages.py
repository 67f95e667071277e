"""The pages without scripts: what they show, and that they are whole in themselves."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx
import pytest
from fastapi import FastAPI

from segue.server.app import create_app

pytestmark = pytest.mark.anyio

ADDRESS = "http://127.0.0.1:8000"
# Besides those of the document: ours, and those that FastAPI makes of itself.
UNLISTED = ["/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json", "/metrics"]


class Parsed(HTMLParser):
    """Tags with their attributes, and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def values(self, name: str) -> set[str]:
        return {value for _, attrs in self.tags if (value := attrs.get(name))}


@pytest.fixture
def app() -> FastAPI:
    async def never() -> None:
        raise AssertionError

    return create_app(never)  # type: ignore[arg-type] # nobody opens it


@pytest.fixture
async def pages(app: FastAPI) -> dict[str, httpx.Response]:
    """Every route that answers with HTML, by its path."""
    paths = {*app.openapi()["paths"], *UNLISTED}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        answers = {path: await client.get(path) for path in paths if "{" not in path}
    return {
        path: answer
        for path, answer in answers.items()
        if answer.headers["content-type"].startswith("text/html")
    }


async def test_no_page_names_a_foreign_host(pages: dict[str, httpx.Response]) -> None:
    """No script, and nothing to load: not from elsewhere, not from here; a policy keeps it so."""
    assert {"/docs"} <= pages.keys()
    for path, page in pages.items():
        parsed = Parsed(page.text)
        # One stands in the example of a body.
        named = {*re.findall(r"https?://[\w.:-]+", page.text)} - {"https://push.example.org"}
        assert named <= {ADDRESS}, path
        assert not [link for link in parsed.values("href") if link.startswith("//")], path
        assert not parsed.values("src") | ({"script", "link"} & {tag for tag, _ in parsed.tags})
        [style] = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = page.headers["content-security-policy"]
        assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';"), path


async def test_pages_can_be_read_by_everybody(pages: dict[str, httpx.Response]) -> None:
    """A language, a title, one heading, a main part, heads of tables, light and dark."""
    for path, page in pages.items():
        parsed = Parsed(page.text)
        tags = [tag for tag, _ in parsed.tags]
        assert ("html", {"lang": "en"}) in parsed.tags, path
        assert [tags.count(tag) for tag in ("title", "h1", "main")] == [1, 1, 1], path
        assert all("scope" in attrs for tag, attrs in parsed.tags if tag == "th"), path
        assert "color-scheme: light dark" in page.text


async def test_links_lead_somewhere(app: FastAPI, pages: dict[str, httpx.Response]) -> None:
    """To a route of this server, or to a place in the page; relative, as the app may be mounted."""
    paths = {*app.openapi()["paths"], *UNLISTED, "/"}
    for path, page in pages.items():
        parsed = Parsed(page.text)
        for link in parsed.values("href"):
            if link.startswith("#"):
                assert link[1:] in parsed.values("id"), path
            else:
                assert f"/{link.removeprefix('./')}" in paths, link


async def test_all_routes_are_listed_with_their_bodies(
    app: FastAPI, pages: dict[str, httpx.Response]
) -> None:
    """Nothing of the document is left out, and its words are shown as words."""
    page = pages["/docs"]
    listed = set(re.findall(r"<strong>([A-Z]+)</strong> <code>([^<]+)</code>", page.text))
    document = app.openapi()
    assert listed == {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert set(document["components"]["schemas"]) <= Parsed(page.text).values("id")


async def test_a_mark_in_the_document_stays_a_word(app: FastAPI) -> None:
    """A description cannot become part of the page."""
    app.openapi()["info"]["title"] = "<img src=x>"
    app.openapi()["paths"]["/healthz"]["get"]["description"] = "<script>alert(1)</script>"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        parsed = Parsed((await client.get("/docs")).text)
    assert not {"script", "img"} & {tag for tag, _ in parsed.tags}
    assert "<script>alert(1)</script>" in parsed.words
