"""The mapping file: how a log of another shape becomes one in the contract. `docs/import.md` walks through it.

It is plain data with strict keys, as a recipe is. Wherever a value is wanted, an expression over the source's columns
stands (`trainer.windows.importing.expressions`); a section with one ``value`` may be written as that value alone.
"""

import re
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from trainer.recipe import LogsConfig
from trainer.recipe.types import STRICT_KEYS, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from trainer.windows.contract import arrow_schema

_LABEL = re.compile(r"[a-z][a-z0-9_]*")
_MAX_ACTION = 127
_MAX_HISTORY = 10_000


def _as_text(value: Any) -> Any:
    """YAML reads a bare 0 or true as what it is; here it is an expression."""
    return str(value) if isinstance(value, bool | int | float) else value


def _as_section(value: Any) -> Any:
    return {"value": value} if isinstance(value, str | bool | int | float) else value


Formula = Annotated[str, BeforeValidator(_as_text)]
_CSV_ONLY = {"delimiter": ",", "quote": '"', "columns": None, "encoding": "utf-8"}


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class SourceConfig:
    """What the files are, and which of their records count.

    Attributes:
        format: ``json`` is JSON lines, one record a line. CSV and JSON lines may be gzipped.
        delimiter: ``csv``: between values.
        quote: ``csv``: around values that hold a delimiter, a line's end or, doubled, itself; null is none.
        columns: ``csv``: names of the columns where files have no header.
        encoding: ``csv``: of the text.
        nulls: ``csv``: what stands for no value.
        where: Records that are impressions; null is all of them.
    """

    format: Literal["csv", "json", "parquet"]
    delimiter: str = ","
    quote: str | None = '"'
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    nulls: tuple[str, ...] = ("", "null", "NULL", "NaN", "nan", "\\N")
    where: Formula | None = None

    def __post_init__(self) -> None:
        if self.format != "csv":
            for name, default in _CSV_ONLY.items():
                if getattr(self, name) != default:
                    raise ValueError(f"{name} belongs to format 'csv', not '{self.format}'")
        for name in ("delimiter", "quote"):
            text = getattr(self, name)
            if text is not None and (len(text) != 1 or not text.isascii() or text in "\r\n"):
                raise ValueError(f"{name}: '{text}' is not one character")
        try:
            "".encode(self.encoding)
        except LookupError:
            raise ValueError(f"encoding: '{self.encoding}' is not known; utf-8 and latin-1 are, for two") from None
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise ValueError("columns: a name appears twice")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class IdConfig:
    """An id.

    Attributes:
        value: What it is read from.
        kind: ``integer`` keeps it as it is, ``text`` hashes it to 63 bits.
    """

    value: Formula
    kind: Literal["integer", "text"] = "integer"


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class SlateConfig:
    """The slate's id: read from the source, or derived from what its rows have in common.

    Attributes:
        value: What it is read from.
        kind: As of any id.
        hash: Instead of `value`: what all rows of a slate share, such as the user; hashed together.
        within_minutes: With `hash`: rows of one slate lie in one span of so many minutes, counted from 1970, UTC.
    """

    value: Formula | None = None
    kind: Literal["integer", "text"] = "integer"
    hash: tuple[Formula, ...] = ()
    within_minutes: PositiveFloat | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (not self.hash):
            raise ValueError("give one of value and hash")
        if self.within_minutes is not None and not self.hash:
            raise ValueError("within_minutes belongs to hash")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class TimeConfig:
    """A point in time.

    Attributes:
        value: What it is read from; a column that holds times already is taken as such.
        format: ``iso``; ``s``, ``ms``, ``us`` or ``ns`` since 1970; or a pattern such as ``%d/%m/%Y %H:%M:%S``.
        time_zone: Zone of times that name no offset of their own, such as ``Europe/Berlin``.
        dst: Local times that a change of clocks skips or tells twice. ``shift``: what was skipped is the moment after
            the gap, what is told twice its first. ``bad_row``: such a row is a bad one.
    """

    value: Formula
    format: str = "iso"
    time_zone: str = "UTC"
    dst: Literal["shift", "bad_row"] = "shift"

    def __post_init__(self) -> None:
        if "%" not in self.format and self.format not in ("iso", "s", "ms", "us", "ns"):
            raise ValueError(f"format: '{self.format}' is none of iso, s, ms, us, ns and has no % of a pattern")
        if "%f" in self.format.removesuffix(".%f"):
            raise ValueError(f"format: '{self.format}' has %f elsewhere than as .%f at its end")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class PositionConfig:
    """Where in its slate a row was shown. With neither key, rows of a slate are in the order of the source.

    Attributes:
        value: What it is read from.
        first: With `value`: what the source calls the top.
        order_by: Instead: rows of a slate are ranked by it, smallest first, equal ones in the order of the source.
    """

    value: Formula | None = None
    first: int = 0
    order_by: Formula | None = None

    def __post_init__(self) -> None:
        if self.value is not None and self.order_by is not None:
            raise ValueError("give one of value and order_by")
        if self.first and self.value is None:
            raise ValueError("first belongs to value")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class NumberConfig:
    """One feature, or several from a list.

    Attributes:
        value: What it is read from.
        fill: Stands where there is no value; without it such a row is a bad one.
        length: Of a column that holds lists: numbers in each.
    """

    value: Formula
    fill: float | None = None
    length: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class PastConfig:
    """A history that the source holds already.

    Attributes:
        value: A column of lists of pins, or of text that `separator` splits into them.
        separator: Of text.
        actions: A column of the same shape with an integer a pin.
        action: Where there is no such column: the action of every pin.
        oldest_first: Whether the source begins with the oldest.
    """

    value: Formula
    separator: str | None = None
    actions: Formula | None = None
    action: NonNegativeInt = 1
    oldest_first: bool = False

    def __post_init__(self) -> None:
        if self.action > _MAX_ACTION:
            raise ValueError(f"action {self.action} is above {_MAX_ACTION}")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class HistoryConfig:
    """What a user engaged with before a row, most recent first.

    Attributes:
        length: Most pins of it that are kept.
        from_labels: Builds it: the action for each label that counts as an engagement. Of a row with several, the first
            that is named here gives the action.
        known_after_s: With `from_labels`: seconds from an engagement (its own time where it has one, else the
            impression's) to when a row may know of it.
        from_column: Takes it from the source instead.
    """

    length: PositiveInt = 32
    from_labels: dict[str, NonNegativeInt] | None = None
    known_after_s: NonNegativeFloat = 0.0
    from_column: PastConfig | None = None

    def __post_init__(self) -> None:
        if self.from_column is not None and (self.from_labels is not None or self.known_after_s):
            raise ValueError("give one of from_labels and from_column")
        if self.from_labels is not None and (not self.from_labels or max(self.from_labels.values()) > _MAX_ACTION):
            raise ValueError(f"from_labels: name at least one label, with an action of 0 to {_MAX_ACTION}")
        if self.length > _MAX_HISTORY:
            raise ValueError(f"length {self.length} is above {_MAX_HISTORY}")

    @property
    def actions(self) -> dict[str, int]:
        """Action by label, of a history that is built."""
        return {"save": 1} if self.from_labels is None else self.from_labels


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class EngagementsConfig:
    """Engagements that are records of their own, of the same files or of others: they give labels and histories.

    An engagement belongs to the last impression before it with its key: (``request_id``, ``pin_id``) where
    ``request_id`` is mapped here, else (``user_id``, ``pin_id``).

    Attributes:
        source: Files of their own; null is those of the impressions.
        where: Records that are engagements; null is all of them.
        request_id: The slate, where they know it.
        user_id: Who engaged.
        pin_id: With what.
        ts: When.
        labels: What makes an engagement one of that label, such as ``event == 'save'``.
        within_hours: Longest time from an impression to its engagement.
    """

    source: SourceConfig | None = None
    where: Formula | None = None
    request_id: Annotated[IdConfig, BeforeValidator(_as_section)] | None = None
    user_id: Annotated[IdConfig, BeforeValidator(_as_section)]
    pin_id: Annotated[IdConfig, BeforeValidator(_as_section)]
    ts: Annotated[TimeConfig, BeforeValidator(_as_section)]
    labels: dict[str, Formula]
    within_hours: PositiveFloat = 24.0

    def __post_init__(self) -> None:
        if self.source is not None and self.source.where is not None:
            raise ValueError("source.where: write engagements.where")
        if not self.labels:
            raise ValueError("labels: name at least one")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class Mapping:
    """A whole mapping file.

    Attributes:
        source: What the files are.
        request_id: The slate.
        user_id: Who was shown it.
        pin_id: What was shown.
        ts: When.
        position: Where in the slate.
        labels: What makes a row one of that label; unknown is false. ``save`` must be here or in `engagements`.
        user_features: Numbers that were known of the user at ``ts``; none becomes one that is always 0.
        pin_features: The same of the pin.
        history: What the user engaged with before.
        engagements: Engagements that are records of their own.
        propensity: Probability, in (0, 1], with which the row was shown there.
        text: The pin's title.
        image: The pin's picture, a column of bytes.
        on_bad_row: ``refuse`` ends the import, with nothing written; ``drop`` leaves such rows out and counts them.
    """

    source: SourceConfig
    request_id: Annotated[SlateConfig, BeforeValidator(_as_section)]
    user_id: Annotated[IdConfig, BeforeValidator(_as_section)]
    pin_id: Annotated[IdConfig, BeforeValidator(_as_section)]
    ts: Annotated[TimeConfig, BeforeValidator(_as_section)]
    position: Annotated[PositionConfig, BeforeValidator(_as_section)] = PositionConfig()
    labels: dict[str, Formula] = field(default_factory=dict)
    user_features: tuple[Annotated[NumberConfig, BeforeValidator(_as_section)], ...] = (NumberConfig(value="0"),)
    pin_features: tuple[Annotated[NumberConfig, BeforeValidator(_as_section)], ...] = (NumberConfig(value="0"),)
    history: HistoryConfig = HistoryConfig()
    engagements: EngagementsConfig | None = None
    propensity: Formula | None = None
    text: Formula | None = None
    image: Formula | None = None
    on_bad_row: Literal["refuse", "drop"] = "refuse"

    def __post_init__(self) -> None:
        joined = {} if self.engagements is None else self.engagements.labels
        for label in (*self.labels, *joined):
            if not _LABEL.fullmatch(label):
                raise ValueError(f"labels: '{label}' is not of small letters, digits and _")
        twice = set(self.labels) & set(joined)
        if twice:
            raise ValueError(f"labels: '{min(twice)}' is in engagements.labels too; keep one")
        if "save" not in self.label_names:
            raise ValueError("labels: 'save' is missing; say what a save is")
        taken = set(arrow_schema(LogsConfig(uri="", num_user_features=1, num_pin_features=1), ()).names) - {"save"}
        if taken & set(self.label_names):
            raise ValueError(f"labels: '{min(taken & set(self.label_names))}' is a column of the contract")
        unknown = set(self.history.actions) - set(self.label_names)
        if unknown and self.history.from_column is None:
            raise ValueError(f"history.from_labels: '{min(unknown)}' is no label; choose of {self.label_names}")
        if not self.user_features or not self.pin_features:
            raise ValueError("user_features and pin_features: name at least one each, or leave the key out")

    @property
    def label_names(self) -> tuple[str, ...]:
        """All labels; ``save`` is the first."""
        joined = () if self.engagements is None else tuple(self.engagements.labels)
        return tuple(sorted((*self.labels, *joined), key=lambda label: label != "save"))

    @property
    def extras(self) -> tuple[str, ...]:
        """The contract's optional columns that it maps."""
        return tuple(name for name in ("propensity", "image", "text") if getattr(self, name) is not None)

    def logs(self, uri: str) -> LogsConfig:
        """The shape of the log that it gives, at `uri`."""
        lengths = [
            sum(feature.length or 1 for feature in features) for features in (self.user_features, self.pin_features)
        ]
        return LogsConfig(uri=uri, labels=self.label_names, num_user_features=lengths[0], num_pin_features=lengths[1])
