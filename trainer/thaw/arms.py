"""The named ways to train.

Schedules. ``delayed`` is the method: from the second pass on, a row already holds the label of the very example that
reads it, so tables should see each label once, in the last pass. ``cotrain`` shows the harm that this avoids (Zhang et
al., CIKM 2022), ``adapt_then_freeze`` that the order matters, ``frozen`` that adapting is worth it.

Routes. ``contrastive_only`` and its kin adapt in every pass, as ``cotrain`` does, through some of the losses or paths
alone: does isolating gradients do what waiting does?

Published remedies adapt in every pass too, each with its own cure (`trainer.thaw.remedies`). ``frequency_thaw`` is
ours: frequent rows adapt early, since one label among many leaves no mark on them; rare rows wait for the last pass.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from trainer.recipe import Arm, PathsConfig, Recipe, RoutesConfig
from trainer.thaw.remedies import Admission, FrequencyRate, Shrinkage
from trainer.thaw.schedule import ThawSchedule

_OPEN, _CLOSED = PathsConfig(), PathsConfig(candidate=0.0, history=0.0, user=0.0)
_ALL_OPEN = RoutesConfig()


@dataclass(frozen=True, kw_only=True)
class ArmPlan:
    """What an arm does to the tables: plain data.

    Attributes:
        schedule: When they adapt.
        routes: Through what.
        admission: Which rows wait longer, by their frequency; None admits all alike.
        row_update: What becomes of a row's update; None takes it as it is.
        row_dropout: Share of looked-up values that are dropped in training.
        rate_scale: Their step size as a share of the recipe's.
        restores_rows: Whether each later pass begins with the backbone's rows.
    """

    schedule: ThawSchedule
    routes: RoutesConfig = _ALL_OPEN
    admission: Admission | None = None
    row_update: FrequencyRate | Shrinkage | None = None
    row_dropout: float = 0.0
    rate_scale: float = 1.0
    restores_rows: bool = False

    @property
    def counts_impressions(self) -> bool:
        """Whether it treats rows by their impressions in the window."""
        return self.row_update is not None or self.admission is not None

    def through(self, epoch: int) -> Hashable:
        """What of the plan shapes a run's first ``epoch`` passes: arms that agree on it are alike until then."""
        begin, until = (min(edge, float(epoch)) for edge in (self.schedule.adapt_from, self.schedule.adapt_until))
        if begin >= until:
            return epoch, self.row_dropout
        admission = self.admission and self.admission.through(epoch)
        restores = self.restores_rows and epoch > 1
        adapting = (begin, until, self.routes, admission, self.row_update, self.rate_scale, restores)
        return epoch, self.row_dropout, adapting


def plan_of(recipe: Recipe) -> ArmPlan:
    """The plan of a recipe's arm."""
    return ARMS[recipe.thaw.arm](recipe)


def _single_epoch(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=ThawSchedule(num_epochs=1), routes=recipe.thaw.routes)


def _cotrain(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=_always(recipe), routes=recipe.thaw.routes)


def _frozen(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=ThawSchedule(num_epochs=recipe.thaw.num_epochs, adapt_from=math.inf))


def _delayed(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=_delayed_schedule(recipe), routes=recipe.thaw.routes)


def _adapt_then_freeze(recipe: Recipe) -> ArmPlan:
    schedule = ThawSchedule(num_epochs=recipe.thaw.num_epochs, adapt_until=1.0)
    return ArmPlan(schedule=schedule, routes=recipe.thaw.routes)


def _frequency_thaw(recipe: Recipe) -> ArmPlan:
    remedies, schedule = recipe.remedies, _delayed_schedule(recipe)
    early = ThawSchedule(
        num_epochs=schedule.num_epochs,
        adapt_from=min(remedies.frequent_thaw_point, schedule.adapt_from),
        adapt_until=schedule.adapt_until,
    )
    admission = Admission(rare_below=remedies.frequent_count, rare_from=schedule.adapt_from)
    return ArmPlan(schedule=early, routes=recipe.thaw.routes, admission=admission)


def _routed(*, head: PathsConfig, pairwise: PathsConfig, contrastive: PathsConfig) -> Callable[[Recipe], ArmPlan]:
    routes = RoutesConfig(head=head, pairwise=pairwise, contrastive=contrastive)
    return lambda recipe: ArmPlan(schedule=_always(recipe), routes=routes)


def _along(path: PathsConfig) -> Callable[[Recipe], ArmPlan]:
    return _routed(head=path, pairwise=path, contrastive=path)


def _meda(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=_always(recipe), restores_rows=True)


def _frequency_lr(recipe: Recipe) -> ArmPlan:
    rate = FrequencyRate(full_count=recipe.remedies.full_rate_count, power=recipe.remedies.rate_power)
    return ArmPlan(schedule=_always(recipe), row_update=rate)


def _adam_ar(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=_always(recipe), row_update=Shrinkage(share=recipe.remedies.interval_decay, by_step=True))


def _slow_tables(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=_always(recipe), rate_scale=recipe.remedies.table_rate_scale)


def _row_dropout(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=_always(recipe), row_dropout=recipe.remedies.row_dropout)


def _row_decay(recipe: Recipe) -> ArmPlan:
    return ArmPlan(schedule=_always(recipe), row_update=Shrinkage(share=recipe.remedies.row_decay, by_step=False))


def _min_count(recipe: Recipe) -> ArmPlan:
    admission = Admission(rare_below=recipe.remedies.min_count, rare_from=math.inf)
    return ArmPlan(schedule=_always(recipe), admission=admission)


def _always(recipe: Recipe) -> ThawSchedule:
    return ThawSchedule(num_epochs=recipe.thaw.num_epochs)


def _delayed_schedule(recipe: Recipe) -> ThawSchedule:
    num_epochs, group = recipe.thaw.num_epochs, recipe.groups.tables
    return ThawSchedule(
        num_epochs=num_epochs,
        adapt_from=num_epochs - 1.0 if group.thaw_point is None else group.thaw_point,
        adapt_until=math.inf if group.freeze_point is None else group.freeze_point,
    )


ARMS: dict[Arm, Callable[[Recipe], ArmPlan]] = {
    "single_epoch": _single_epoch,
    "cotrain": _cotrain,
    "frozen": _frozen,
    "delayed": _delayed,
    "adapt_then_freeze": _adapt_then_freeze,
    "contrastive_only": _routed(head=_CLOSED, pairwise=_CLOSED, contrastive=_OPEN),
    "no_contrastive": _routed(head=_OPEN, pairwise=_OPEN, contrastive=_CLOSED),
    "head_only": _routed(head=_OPEN, pairwise=_CLOSED, contrastive=_CLOSED),
    "pairwise_only": _routed(head=_CLOSED, pairwise=_OPEN, contrastive=_CLOSED),
    "candidate_only": _along(PathsConfig(history=0.0, user=0.0)),
    "history_only": _along(PathsConfig(candidate=0.0, user=0.0)),
    "meda": _meda,
    "frequency_lr": _frequency_lr,
    "adam_ar": _adam_ar,
    "slow_tables": _slow_tables,
    "row_dropout": _row_dropout,
    "row_decay": _row_decay,
    "min_count": _min_count,
    "frequency_thaw": _frequency_thaw,
}
