"""The agent: the only part of Segue that runs LangGraph."""
