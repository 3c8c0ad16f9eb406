"""What goes wrong because of the user's input or machine, as one small family of exceptions."""


class CompanionError(Exception):
    """Something could not be done; the message says what and how to go on. Exit code 1."""

    exit_code = 1


class InputError(CompanionError, ValueError):
    """Bad input or bad usage: the message names the field, the value and the remedy. Exit code 2."""

    exit_code = 2
