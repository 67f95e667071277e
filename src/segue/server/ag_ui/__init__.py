"""AG-UI: agents for clients such as `HttpAgent`, follow-ups included."""

from segue.server.ag_ui.routes import router

__all__ = ["router"]
