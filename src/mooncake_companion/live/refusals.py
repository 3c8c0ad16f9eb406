"""What the model refuses, told beside the field that can mend it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.cluster import Deployment
from mooncake_companion.simulator.reference import Request


@contextmanager
def beside(name: str) -> Iterator[None]:
    """Have an `InputError` of what is done within shown beside a field."""
    try:
        yield
    except InputError as error:
        raise InputError(f"parameter {name}: {error}") from error


def require_room(requests: Sequence[Request], cluster: Deployment) -> None:
    """Check that a node's GPU memory holds each of the requests.

    Raises
    ------
    InputError
        About the parameter `node`.
    """
    longest = max((each.input_tokens + each.output_tokens for each in requests), default=0)
    if longest > cluster.vram_tokens:
        raise InputError(
            f"parameter node: {cluster.node.title} holds {cluster.vram_tokens:,} tokens of "
            f"{cluster.model.title} in GPU memory, and a request has {longest:,}"
        )
