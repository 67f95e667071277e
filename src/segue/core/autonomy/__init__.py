"""Whether and when an agent speaks first: pure rules."""
