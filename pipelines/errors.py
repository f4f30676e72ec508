"""What may go wrong with a run that is not the user's to mend."""


class RunFailedError(RuntimeError):
    """A step failed; the message names the step and its log."""
