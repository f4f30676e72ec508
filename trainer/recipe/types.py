"""What the sections of a recipe have in common: they refuse unknown keys, and check the ranges of numbers."""

from typing import Annotated

from pydantic import ConfigDict, Field

STRICT_KEYS = ConfigDict(extra="forbid")

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Probability = Annotated[float, Field(ge=0, lt=1)]
