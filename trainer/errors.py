"""The one exception that means "the user can mend this"."""


class InputError(ValueError):
    """A user's mistake, told in one line: what is wrong, where, and what to do.

    Commands and components print it as it stands and exit with code 2; every other exception is a failure (code 1).
    """
