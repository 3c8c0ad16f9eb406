"""What the model refuses, told beside the field that can mend it."""

from collections.abc import Iterator
from contextlib import contextmanager

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode
from mooncake_companion.llm import TransformerModel
from mooncake_companion.simulator.cluster import Cluster


@contextmanager
def beside(name: str) -> Iterator[None]:
    """Have an `InputError` of what is done within shown beside a field."""
    try:
        yield
    except InputError as error:
        raise InputError(f"parameter {name}: {error}") from error


def require_fit(node: GpuNode, model: TransformerModel) -> None:
    """Check that a node's GPU memory holds a model's weights.

    Raises
    ------
    InputError
        About the parameter `model`.
    """
    with beside("model"):
        Cluster(node=node, model=model, calibration=load_calibration(), prefill_nodes=1, decode_nodes=1)
