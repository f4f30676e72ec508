"""Rounds of alternated cases."""

from collections.abc import Sequence


def order_of(cases: Sequence[str], number: int) -> list[str]:
    """The cases in the order of a round; over as many rounds as cases, each stands once at every place."""
    turn = number % len(cases)
    return [*cases[turn:], *cases[:turn]]
