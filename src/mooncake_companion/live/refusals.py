"""What the model refuses, told beside the field that can mend it."""

from collections.abc import Iterator
from contextlib import contextmanager

from mooncake_companion.errors import InputError


@contextmanager
def beside(name: str) -> Iterator[None]:
    """Have an `InputError` of what is done within shown beside a field."""
    try:
        yield
    except InputError as error:
        raise InputError(f"parameter {name}: {error}") from error
