"""Migration of conversations from LangGraph's checkpoints and files of chats.

A source is only read. What was stored is recorded with the thread, so that a killed run continues,
a second run changes nothing, and only new messages of a source that grew are imported.
"""

from typing import Final

# The setting of a thread with this record.
SETTING: Final = "migrated"
