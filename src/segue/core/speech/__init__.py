"""Users' requests in plain language, and machinery in the agents' messages."""
