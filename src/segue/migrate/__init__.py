"""Bringing the conversations of other systems in: LangGraph's checkpoints and files of chats.

A source is only ever read. What is taken of it is remembered with the thread, so that a run that
was cut off goes on, a second one changes nothing, and a source that grew gives what is new.
"""
