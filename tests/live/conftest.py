"""Traces that the live figures are tried on."""

import pytest
from tests.live.small import head

from mooncake_companion import traces


@pytest.fixture(scope="module")
def conversation():
    return head("conversation")


@pytest.fixture(scope="module")
def busy_hour():
    return traces.load("conversation").head(400)
