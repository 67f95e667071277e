"""Settings that every test shares."""

import os

from hypothesis import HealthCheck, settings

# Examples are the same on every run of the same tree, so a red tree stays red until it is mended.
# A new module may change them, since hypothesis also draws constants that it finds in the code.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
# For a long search by hand: HYPOTHESIS_PROFILE=thorough
settings.register_profile("thorough", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
