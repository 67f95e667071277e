"""AG-UI: agents for clients such as `HttpAgent`, and what the agent writes of its own accord."""

from segue.server.ag_ui.routes import router

__all__ = ["router"]
