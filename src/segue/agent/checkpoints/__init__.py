"""Where LangGraph keeps running turns."""
