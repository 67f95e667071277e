"""The pure core: no I/O, no clock, no randomness.

`now` and new ids are arguments, so every function can be replayed exactly. LangChain's messages
are the message type.
"""
