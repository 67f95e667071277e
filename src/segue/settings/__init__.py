"""Settings: what can be set, and how it is read from a file, the environment and flags."""

from segue.settings.loading import load_settings
from segue.settings.settings import Settings, note_on_first_try

__all__ = ["Settings", "load_settings", "note_on_first_try"]
