"""The server: REST, WebSocket and server-sent events over one running `Segue`."""

from segue.server.app import create_app
from segue.server.auth import Identity

__all__ = ["Identity", "create_app"]
