"""What goes wrong because of the user's input or machine, as one small family of exceptions."""


class CompanionError(Exception):
    """Something could not be done; the message says what and how to go on. Exit code 1."""

    exit_code = 1


class InputError(CompanionError, ValueError):
    """Bad input or bad usage: the message names the field, the value and the remedy. Exit code 2."""

    exit_code = 2


SHOWN_CHARACTERS = 60


def shown(text: str, most: int = SHOWN_CHARACTERS) -> str:
    r"""A value from a file, fit for a message: shortened, and nothing in it that a terminal obeys.

    >>> print(shown("two" + chr(27) + "[31m words"))
    two\x1b[31m words
    >>> print(shown("a" * 80, 5))
    aaaaa…
    """
    cut = text if len(text) <= most else f"{text[:most]}…"
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in cut
    )
