"""How Hypothesis searches: at random for a developer, the same cases every time in CI."""

import os

from hypothesis import settings

# A loaded machine is not a bug: no test has a deadline.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("agreement", deadline=None, derandomize=True, max_examples=1000)  # to be recorded
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
