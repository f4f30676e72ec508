"""Small tables: whole on every rank, trained by the dense optimizer like any parameter.

Few rows that many ids share are where a scatter-add is slow on a GPU: its threads queue for the same row, or sort the
ids first. ``one_hot(ids).T @ gradients`` is the same sum as a matmul, and no thread waits. It does more arithmetic, the
more rows the more, so which way is faster is a matter of sizes and of the device: `faster_way`.

Shape suffixes: R rows of the table, N ids, C those of a chunk, D width of a row.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

Way = Literal["matmul", "scatter"]

MAX_ONE_HOT = 2**22
"""Elements of a one-hot matrix at a time, 16 MiB of float32: more ids go through in chunks."""


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Where a matmul is faster than a scatter.

    Attributes:
        min_ids: Fewest ids; a matmul launches more kernels, which fewer do not repay.
        max_products: Most multiplications, R x N x D; more take longer than the scatter's way around them.
    """

    min_ids: int
    max_products: int

    def way(self, *, num_rows: int, num_ids: int, dim: int) -> Way:
        """The faster way at given sizes."""
        is_repaid = num_ids >= self.min_ids and num_rows * num_ids * dim <= self.max_products
        return "matmul" if is_repaid else "scatter"


CUDA_CROSSOVER = Crossover(min_ids=1024, max_products=2**28)
"""A prior that no GPU has confirmed yet: 2**28 products and their one-hot take some 50 us on a current one, as long as
sorting the ids. `make bench-gpu` measures, and says what it should be."""


class SmallTable(nn.Module):
    """Rows that are gathered by their number; a drop-in for ``nn.Embedding``, with the same first rows.

    Args:
        num_rows: R.
        dim: D.

    Attributes:
        weight: The rows (R, D), float32.
    """

    def __init__(self, num_rows: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_rows, dim))
        nn.init.normal_(self.weight)

    def forward(self, ids_N: Tensor) -> Tensor:
        """The rows (N, D) of ids (N,) int64 in [0, R)."""
        return gather(self.weight, ids_N)


def faster_way(gradients_ND: Tensor, num_rows: int) -> Way:
    """How to sum gradients of rows sooner, where they lie.

    On CPU, measured, a scatter is faster at every size; it even leaves no time for weighing much.
    """
    if not gradients_ND.is_cuda:
        return "scatter"
    num_ids, dim = gradients_ND.shape
    return CUDA_CROSSOVER.way(num_rows=num_rows, num_ids=num_ids, dim=dim)


def gather(weight_RD: Tensor, ids_N: Tensor, *, way: Way | None = None) -> Tensor:
    """Rows (N, D) of a table, differentiable with respect to it.

    Args:
        weight_RD: The table.
        ids_N: int64 in [0, R).
        way: Of its gradient; None takes the faster one.
    """
    rows_ND: Tensor = _Gather.apply(weight_RD, ids_N, way)  # type: ignore[no-untyped-call]
    return rows_ND


def sum_by_row(gradients_ND: Tensor, ids_N: Tensor, *, num_rows: int, way: Way | None = None) -> Tensor:
    """The gradient (R, D) of a table from those of its gathered rows; zeros where nothing was read.

    The same bits for the same input and way. A scatter adds in the order of the ids, as ``nn.Embedding`` does on CPU; a
    matmul adds in an order of its own, so that the two differ by rounding. There a gradient that is not finite spoils
    every row, as zero times infinity is no number.

    Args:
        gradients_ND: Of the rows.
        ids_N: int64 in [0, R), the row of each.
        num_rows: R.
        way: None takes the faster one.
    """
    if way is None:
        way = faster_way(gradients_ND, num_rows)
    return _matmul(gradients_ND, ids_N, num_rows) if way == "matmul" else _scatter(gradients_ND, ids_N, num_rows)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight_RD: Tensor, ids_N: Tensor, way: Way | None) -> Tensor:
        ctx.save_for_backward(ids_N)
        ctx.num_rows, ctx.way = len(weight_RD), way
        return weight_RD.index_select(0, ids_N)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradients_ND,), (ids_N,) = gradients, ctx.saved_tensors
        return sum_by_row(gradients_ND, ids_N, num_rows=ctx.num_rows, way=ctx.way), None, None


def _matmul(gradients_ND: Tensor, ids_N: Tensor, num_rows: int) -> Tensor:
    total_RD = gradients_ND.new_zeros(num_rows, gradients_ND.shape[1])
    size = max(1, MAX_ONE_HOT // num_rows)
    for ids_C, gradients_CD in zip(torch.split(ids_N, size), torch.split(gradients_ND, size), strict=True):
        one_hot_CR = gradients_CD.new_zeros(len(ids_C), num_rows).scatter_(1, ids_C.unsqueeze(1), 1.0)
        total_RD.addmm_(one_hot_CR.T, gradients_CD)
    return total_RD


def _scatter(gradients_ND: Tensor, ids_N: Tensor, num_rows: int) -> Tensor:
    if gradients_ND.is_cpu:
        # Up to three times as fast there as nn.Embedding's own backward pass, and equal to it bit for bit.
        return gradients_ND.new_zeros(num_rows, gradients_ND.shape[1]).index_add_(0, ids_N, gradients_ND)
    # On CUDA index_add_ is atomic: its sums change from run to run. This one sorts the ids.
    total_RD: Tensor = torch.ops.aten.embedding_dense_backward(gradients_ND, ids_N, num_rows, -1, False)
    return total_RD
