"""What may flow back into the tables: the gate between looked-up rows and the losses.

The matrix of routes says how much of each loss reaches the tables along each path; a path is a call site of the lookup.
The network learns from every loss in any case. With everything open the gate hands the rows through and adds nothing.
Otherwise the losses read a copy of the rows; each group of losses with the same routes is differentiated with respect
to that copy by itself, its gradients are scaled, and their sum goes back through the lookup once. A closed route's
share is left out of the sum, not subtracted from it: its gradient is exactly zero.

Shape suffixes: N ids of a call site, D width of a table row, R rows of a table.
"""

from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.embeddings.lookup import SITES_OF_TABLE, Ids, Rows
from trainer.recipe import RoutesConfig
from trainer.thaw.remedies import Admission

Scales = Mapping[str, float]
"""How much of a loss reaches the tables, by call site."""


class Gate:
    """Stands between a lookup and an objective.

    Args:
        routes: Loss by path.
        row_dropout: Share of looked-up values that are dropped.
        admission: Which rows wait; None admits all.
        counts: Impressions of each row (R,) by table, which an admission reads.
    """

    def __init__(
        self,
        routes: RoutesConfig | None = None,
        *,
        row_dropout: float = 0.0,
        admission: Admission | None = None,
        counts: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._scales: dict[str, Scales] = asdict(routes or RoutesConfig())
        self._row_dropout = row_dropout
        self._admission, self._counts = admission, counts or {}

    def open(self, rows: Rows, ids: Ids, progress: float, *, adapting: bool) -> "Passage":
        """Lets the rows of one step through.

        Args:
            rows: Of a lookup, by call site.
            ids: What was looked up.
            progress: Where the step begins, in epochs.
            adapting: Whether a backward pass through the rows updates the tables.
        """
        admitted = self._admitted(ids, progress) if adapting else {}
        has_routes = any(scale != 1.0 for scales in self._scales.values() for scale in scales.values())
        if adapting and (admitted or has_routes):
            return _Routed(rows, self._scales, admitted, self._row_dropout)
        return Passage(self._dropped(rows))

    def _dropped(self, rows: Rows) -> Rows:
        return _dropped(rows, self._row_dropout)

    def _admitted(self, ids: Ids, progress: float) -> dict[str, Tensor]:
        if self._admission is None or progress >= self._admission.rare_from:
            return {}
        masks = {}
        for table, sites in SITES_OF_TABLE.items():
            for site in sites:
                masks[site] = self._counts[table][ids[site]] >= self._admission.rare_below
        return masks


class Passage:
    """One step's way through an open gate: ``rows`` for the objective, `backward` for its losses."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def backward(self, losses: Mapping[str, Tensor]) -> None:
        """Leaves the gradients of the losses' sum on the network, and updates the tables when they adapt."""
        torch.autograd.backward(torch.stack(list(losses.values())).sum())


class _Routed(Passage):
    def __init__(
        self, looked_up: Rows, scales: Mapping[str, Scales], admitted: Mapping[str, Tensor], row_dropout: float
    ) -> None:
        self._looked_up, self._scales, self._admitted = looked_up, scales, admitted
        open_sites = {site for of_loss in scales.values() for site, scale in of_loss.items() if scale}
        self._leaves = {site: rows.detach().requires_grad_(site in open_sites) for site, rows in looked_up.items()}
        super().__init__(_dropped(self._leaves, row_dropout))

    def backward(self, losses: Mapping[str, Tensor]) -> None:
        groups = _group_by_scales(losses, self._scales)
        whole = len(groups) == 1
        gradients = [] if whole else [(scales, self._of_group(loss, scales)) for scales, loss in groups]
        # The network's own gradients, from all losses at once: what data-parallel wrapping waits for.
        torch.autograd.backward(torch.stack(list(losses.values())).sum())
        if whole:
            gradients = [(groups[0][0], {site: leaf.grad for site, leaf in self._leaves.items()})]
        sites = list(self._looked_up)
        torch.autograd.backward(
            [self._looked_up[site] for site in sites], [self._combined(site, gradients) for site in sites]
        )

    def _of_group(self, loss: Tensor, scales: Scales) -> dict[str, Tensor | None]:
        sites = [site for site, scale in scales.items() if scale]
        if not sites:
            return {}
        leaves = [self._leaves[site] for site in sites]
        return dict(zip(sites, torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True), strict=True))

    def _combined(self, site: str, gradients: list[tuple[Scales, dict[str, Tensor | None]]]) -> Tensor:
        total_ND = torch.zeros_like(self._leaves[site])
        for scales, by_site in gradients:
            gradient = by_site.get(site)
            if scales[site] and gradient is not None:
                total_ND += scales[site] * gradient
        if site in self._admitted:
            total_ND *= self._admitted[site].unsqueeze(1)
        return total_ND


def _dropped(rows: Rows, share: float) -> Rows:
    return {site: F.dropout(values, share) for site, values in rows.items()} if share else rows


def _group_by_scales(losses: Mapping[str, Tensor], scales: Mapping[str, Scales]) -> list[tuple[Scales, Tensor]]:
    """Sums of the losses that share their routes, so that each sum is differentiated once."""
    sums: dict[tuple[tuple[str, float], ...], Tensor] = {}
    for name, loss in losses.items():
        key = tuple(sorted(scales[name].items()))
        sums[key] = sums[key] + loss if key in sums else loss
    return [(dict(key), loss) for key, loss in sums.items()]
