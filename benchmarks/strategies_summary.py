"""What the benchmark of the variants says: lifts, comparisons with published remedies, canary and guard.

Every figure is paired by case and comes with the mean and Student's t interval over the cases of its group, a dataset
and a window length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from components.comparison import BASELINE
from trainer.evaluation.lift import mean_interval

OWN = ("delayed", "delayed*3")
PUBLISHED = ("meda", "meda*3", "frequency_lr", "adam_ar", "slow_tables", "row_dropout", "row_decay", "min_count")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one variant reached in one case.

    Attributes:
        variant: Its name (`trainer.thaw.variants`).
        heldout: Metrics on the held-out days after its last pass.
        train_s: Seconds that its passes trained for, those shared with other variants included.
        num_row_gradients: Gradients of looked-up rows that it sent to the tables.
        self_influence: The canary's reading before its last pass; 0 where that is the first.
        loss_jump: Relative change of the training loss at the begin of its last pass.
        refrozen_at: Pass after which the guard took the tables back, or None.
    """

    variant: str
    heldout: Mapping[str, float]
    train_s: float
    num_row_gradients: int
    self_influence: float
    loss_jump: float
    refrozen_at: int | None


class Grouped(Protocol):
    """A case, as far as grouping goes."""

    @property
    def dataset(self) -> str:
        """Where its rows come from."""
        ...

    @property
    def window_days(self) -> int:
        """Training days."""
        ...

    @property
    def seed(self) -> int:
        """Which window or which world."""
        ...


ByVariant = Mapping[str, Outcome]
Figures = dict[str, Any]


def summarize(outcomes: Mapping[Any, Sequence[Outcome]]) -> Figures:
    """The benchmark's figures: ``results``, ``versus``, ``canary``, ``guard`` and ``encoder``, lists of flat entries.

    Args:
        outcomes: Of every variant, by `Grouped` case.
    """
    groups: dict[tuple[str, int], list[ByVariant]] = {}
    for case, of_case in outcomes.items():
        by_variant = {outcome.variant: outcome for outcome in of_case}
        groups.setdefault((case.dataset, case.window_days), []).append(by_variant)
    parts: dict[str, Callable[[list[ByVariant]], Iterator[Figures]]] = {
        "results": _results,
        "versus": _versus,
        "canary": _canary,
        "guard": _guard,
    }
    figures = {
        name: [
            {"dataset": dataset, "window_days": window_days, **entry}
            for (dataset, window_days), of_cases in sorted(groups.items())
            for entry in part(of_cases)
        ]
        for name, part in parts.items()
    }
    return {**figures, "encoder": list(_encoder(outcomes))}


def _results(of_cases: list[ByVariant]) -> Iterator[Figures]:
    """Each variant against the baseline."""
    for variant in dict.fromkeys(name for of_case in of_cases for name in of_case):
        pairs = _pairs(of_cases, variant, BASELINE)
        mine = [pair[0] for pair in pairs]
        entry: Figures = {
            "arm": variant,
            "n": len(pairs),
            "auc_lift": _lift(pairs, "save_auc"),
            "save_hit3_lift": _lift(pairs, "save_hit3"),
            "save_auc": _mean([outcome.heldout["save_auc"] for outcome in mine]),
            "train_s": _mean([outcome.train_s for outcome in mine]),
            "num_row_gradients": _mean([outcome.num_row_gradients for outcome in mine]),
        }
        if all("save_auc_new_pins" in outcome.heldout for pair in pairs for outcome in pair):
            entry["auc_lift_new_pins"] = _lift(pairs, "save_auc_new_pins")
        yield entry


def _versus(of_cases: list[ByVariant]) -> Iterator[Figures]:
    """Our recipes against each published remedy: difference of the lifts, and the cost of one over the other's."""
    for own in OWN:
        for remedy in PUBLISHED:
            pairs = _pairs(of_cases, own, remedy)
            if pairs:
                yield {
                    "own": own,
                    "remedy": remedy,
                    "n": len(pairs),
                    "auc_lift": _lift(pairs, "save_auc"),
                    "save_hit3_lift": _lift(pairs, "save_hit3"),
                    "time_ratio": _mean([mine.train_s / other.train_s for mine, other in pairs]),
                    "row_gradients_ratio": _mean(
                        [mine.num_row_gradients / other.num_row_gradients for mine, other in pairs]
                    ),
                }


def _canary(of_cases: list[ByVariant]) -> Iterator[Figures]:
    """What the canary reads before the second pass of ``cotrain`` and of ``delayed``, and the loss' jump into it."""
    pairs = _pairs(of_cases, "cotrain", "delayed")
    if pairs:
        yield {
            "n": len(pairs),
            "num_separated": sum(harmful.self_influence > safe.self_influence for harmful, safe in pairs),
            "least_cotrain": min(harmful.self_influence for harmful, _ in pairs),
            "most_delayed": max(safe.self_influence for _, safe in pairs),
            "cotrain_loss_jump": _mean([harmful.loss_jump for harmful, _ in pairs]),
            "delayed_loss_jump": _mean([safe.loss_jump for _, safe in pairs]),
        }


def _guard(of_cases: list[ByVariant]) -> Iterator[Figures]:
    """What of the AUC that ``cotrain`` loses against one pass its guard saves."""
    pairs = _pairs(of_cases, "cotrain+guard", "cotrain")
    if pairs:
        losses = [_auc(of_case[BASELINE]) - _auc(of_case["cotrain"]) for of_case in of_cases if _has_guard(of_case)]
        saved = [_auc(guarded) - _auc(harmful) for guarded, harmful in pairs]
        yield {
            "n": len(pairs),
            "num_refrozen": sum(guarded.refrozen_at is not None for guarded, _ in pairs),
            "auc_lost_by_cotrain": _mean(losses),
            "auc_saved_by_guard": _interval(saved),
            "saved_share": _mean(saved) / _mean(losses) if _mean(losses) > 0 else None,
        }


def _encoder(outcomes: Mapping[Any, Sequence[Outcome]]) -> Iterator[Figures]:
    """What the encoder adds to each variant, on the same world: lift of the variant with it over the one without."""
    by_case = {
        (case.dataset, case.window_days, case.seed): {outcome.variant: outcome for outcome in of_case}
        for case, of_case in outcomes.items()
    }
    both = [
        (of_case, by_case["synthetic", window_days, seed])
        for (dataset, window_days, seed), of_case in by_case.items()
        if dataset == "synthetic_vlm" and ("synthetic", window_days, seed) in by_case
    ]
    for variant in dict.fromkeys(name for with_encoder, _ in both for name in with_encoder):
        pairs = [(with_encoder[variant], without[variant]) for with_encoder, without in both]
        yield {
            "arm": variant,
            "n": len(pairs),
            "auc_lift": _lift(pairs, "save_auc"),
            "auc_lift_new_pins": _lift(pairs, "save_auc_new_pins"),
            "save_hit3_lift": _lift(pairs, "save_hit3"),
        }


def _has_guard(of_case: ByVariant) -> bool:
    return "cotrain+guard" in of_case


def _auc(outcome: Outcome) -> float:
    return outcome.heldout["save_auc"]


def _pairs(of_cases: list[ByVariant], mine: str, other: str) -> list[tuple[Outcome, Outcome]]:
    return [(of_case[mine], of_case[other]) for of_case in of_cases if mine in of_case and other in of_case]


def _lift(pairs: Sequence[tuple[Outcome, Outcome]], metric: str) -> dict[str, float]:
    return _interval([mine.heldout[metric] / other.heldout[metric] - 1.0 for mine, other in pairs])


def _interval(values: Sequence[float]) -> dict[str, float]:
    interval = asdict(mean_interval(values))
    return {"mean": interval["point"], "low": interval["low"], "high": interval["high"]}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def lines(figures: Figures) -> Iterator[str]:
    """The figures for people, a line each."""
    for entry in figures["results"]:
        place = f"{entry['dataset']} {entry['window_days']}d {entry['arm']:<18}"
        lifts = f"AUC {percent(entry['auc_lift'])}  HIT@3-save {percent(entry['save_hit3_lift'])}"
        yield f"{place} {lifts}  n={entry['n']}"
    for entry in figures["versus"]:
        place = f"{entry['dataset']} {entry['window_days']}d {entry['own']} over {entry['remedy']:<13}"
        yield f"{place} AUC {percent(entry['auc_lift'])}  time x{entry['time_ratio']:.2f}"


def percent(lift: Mapping[str, float]) -> str:
    """A lift with its interval, in percent."""
    return f"{lift['mean']:+.2%} [{lift['low']:+.2%}, {lift['high']:+.2%}]"
