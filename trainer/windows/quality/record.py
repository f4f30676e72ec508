"""The record of a window's checks in a run's folder: JSON for machines, a page for people."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.errors import InputError
from trainer.storage.publishing import file_aside, read_json, write_json
from trainer.windows.quality.page import page_of
from trainer.windows.quality.report import QualityReport

QUALITY_JSON = "quality.json"
QUALITY_PAGE = "quality.html"


@dataclass(frozen=True, kw_only=True)
class QualityRecord:
    """What a run's folder holds of its window's checks.

    Attributes:
        verdict: ``ok``, ``warn`` or ``stop``.
        num_breaches: Findings beyond their limit.
        page: The page's path.
        files: Texts by file name: the JSON and the page.
    """

    verdict: str
    num_breaches: int
    page: str
    files: dict[str, str]

    def to_summary(self) -> dict[str, Any]:
        """What a run's summary says of it: ``verdict``, ``findings`` (how many are beyond their limit), ``page``."""
        return {"verdict": self.verdict, "findings": self.num_breaches, "page": self.page}


def write_record(report: QualityReport, folder: Path) -> Path:
    """Writes both files, the page last, and returns the page's path.

    Raises:
        InputError: The folder cannot be written to.
    """
    content = report.to_json()
    write_json(folder / QUALITY_JSON, content)
    with file_aside(folder / QUALITY_PAGE) as aside:
        aside.write_text(page_of(content), encoding="utf-8")
    return folder / QUALITY_PAGE


def read_record(folder: Path) -> QualityRecord:
    """Reads what `write_record` wrote.

    Raises:
        InputError: The window was not checked.
    """
    content = read_json(folder / QUALITY_JSON, "start the run again")
    try:
        page = (folder / QUALITY_PAGE).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder / QUALITY_PAGE}: cannot be read ({error.strerror}); start the run again") from None
    return QualityRecord(
        verdict=content["verdict"],
        num_breaches=content["num_breaches"],
        page=str(folder / QUALITY_PAGE),
        files={QUALITY_JSON: json.dumps(content, indent=2, sort_keys=True), QUALITY_PAGE: page},
    )


def refuse_stop(report: QualityReport, page: Path) -> None:
    """Ends a run whose recipe says to stop.

    Args:
        report: What the checks came to.
        page: Where it is shown.

    Raises:
        InputError: The verdict is ``stop``: names the first finding, how many more there are, and the page.
    """
    if report.verdict == "stop":
        first, *others = report.breaches
        more = f" ({len(others)} more finding{'' if len(others) == 1 else 's'})" if others else ""
        raise InputError(
            f"data of {first.line}{more}; see {page}, then mend the day, or set quality.on_breach=warn to train on it"
        )
