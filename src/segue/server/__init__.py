"""The server: REST, WebSocket and server-sent events over one running `Segue`."""

from segue.server.app import create_app

__all__ = ["create_app"]
