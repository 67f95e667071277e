"""The pure core: no I/O, no clock, no randomness.

`now` and new ids come in as arguments, so every function here can be replayed exactly.
LangChain's messages are the message type; nothing else from outside is used.
"""
