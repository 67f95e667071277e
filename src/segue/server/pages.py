"""Pages for people: `/` says what this is and how to talk with it, `/docs` lists all routes.

Each is whole in itself: no script, no file of another host, no link to one. They answer without a
key, since they show nothing that is stored.
"""

import base64
import hashlib
import shlex
from html import escape
from typing import Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from segue.server.access import at_home
from segue.server.route_list import render_routes
from segue.server.serving import is_home

router = APIRouter(include_in_schema=False, dependencies=[Depends(at_home)])

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, pre { font-family: ui-monospace, monospace; }
pre { padding: .75rem; border: 1px solid GrayText; overflow-x: auto; }
summary { cursor: pointer; padding: .25rem 0; }
details { border-bottom: 1px solid GrayText; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; }
tbody th { font-weight: normal; }
"""
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}

# Links are relative, so that they hold in an app that is mounted in another one.
_HOME: Final = """<h1>Segue</h1>
<p>This server runs agents that speak first. It is for programs; people talk with it in a terminal:
</p>
<pre><code>{program} chat --url {address}</code></pre>
<p>If the server has keys, add one with <code>--key</code>; <code>{program} keys create NAME</code>
makes one.</p>
<ul>
<li><a href="docs">All routes</a>, for reading; <a href="openapi.json">openapi.json</a>, for
programs</li>
<li><a href="readyz">Is it ready?</a></li>
<li><a href="metrics">Metrics</a> for Prometheus</li>
</ul>"""


@router.get("/")
async def home(request: Request) -> HTMLResponse:
    """What this is."""
    address = shlex.quote(str(request.base_url).rstrip("/"))
    is_here = is_home(request.url.hostname or "")  # not behind a proxy
    program = request.app.state.program if is_here else "segue"
    return _page("Segue", _HOME.format(address=escape(address), program=escape(program)))


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """All routes with their shapes."""
    return _page("Segue: routes", render_routes(request.app.openapi()))


def _page(title: str, body: str) -> HTMLResponse:
    html = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
    return HTMLResponse(html, headers=_HEADERS)
