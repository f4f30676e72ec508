"""Rows with row-wise Adagrad fused into their backward pass: the gradient of a lookup is never kept, it updates rows.

FBGEMM's kernel does it on CUDA. Its CPU kernel is a reference: for 16,000 distinct rows of 32 values it was measured to
take 47 to 60 ms, and tensor operations, which do the same sums, under 8 ms. So rows on CPU are updated by those.

Shape suffixes: S slots of this rank, T looked-up ones, U distinct ones, D width of a row.
"""

from typing import Any, Protocol

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
from torch import Tensor

_EPSILON = 1e-8  # FBGEMM's


class FusedRows(Protocol):
    """Rows, zero at first, and what Adagrad keeps of each.

    Attributes:
        rows_SD: float32.
        sums_S: float32, the sums of mean squared gradients.
    """

    rows_SD: Tensor
    sums_S: Tensor

    def look_up(self, slots_T: Tensor) -> Tensor:
        """Rows (T, D) float32 of slots int64; a backward pass through them updates those rows, once each."""
        ...

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the step size of the coming updates."""
        ...


def fused_rows(num_slots: int, dim: int, *, learning_rate: float, device: torch.device) -> FusedRows:
    """Rows on a device, with what updates them best there."""
    kind = FbgemmRows if device.type == "cuda" else TensorRows
    return kind(num_slots, dim, learning_rate=learning_rate, device=device)


class FbgemmRows:
    """Rows that FBGEMM's kernel updates; see `FusedRows`."""

    def __init__(self, num_slots: int, dim: int, *, learning_rate: float, device: torch.device) -> None:
        place = (
            (EmbeddingLocation.DEVICE, ComputeDevice.CUDA)
            if device.type == "cuda"
            else (EmbeddingLocation.HOST, ComputeDevice.CPU)
        )
        self._fused = SplitTableBatchedEmbeddingBagsCodegen(
            [(num_slots, dim, *place)],
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=learning_rate,
            eps=_EPSILON,
            pooling_mode=PoolingMode.NONE,
            device=device,
        )
        # Outside autograd's count of versions: a batch that was read ahead holds the weights in its graph, and its
        # backward pass updates them as they are then.
        (self.rows_SD,) = (weights.data for weights in self._fused.split_embedding_weights())
        ((sums_S,),) = self._fused.split_optimizer_states()
        self.sums_S: Tensor = sums_S.data.view(-1)
        self.rows_SD.zero_()

    def look_up(self, slots_T: Tensor) -> Tensor:
        """See `FusedRows.look_up`."""
        if not len(slots_T):  # the kernel wants one
            return torch.empty_like(self.rows_SD[:0], requires_grad=True)
        rows_TD: Tensor = self._fused(slots_T, torch.arange(len(slots_T) + 1, device=slots_T.device))
        return rows_TD

    def set_learning_rate(self, learning_rate: float) -> None:
        """See `FusedRows.set_learning_rate`."""
        self._fused.set_learning_rate(learning_rate)


class TensorRows:
    """Rows that tensor operations update; see `FusedRows`."""

    def __init__(self, num_slots: int, dim: int, *, learning_rate: float, device: torch.device) -> None:
        self.rows_SD = torch.zeros(num_slots, dim, device=device)
        self.sums_S = torch.zeros(num_slots, device=device)
        self._learning_rate = learning_rate
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    def look_up(self, slots_T: Tensor) -> Tensor:
        """See `FusedRows.look_up`."""
        rows_TD: Tensor = _UpdatedByBackward.apply(self._anchor, self, slots_T)  # type: ignore[no-untyped-call]
        return rows_TD

    def set_learning_rate(self, learning_rate: float) -> None:
        """See `FusedRows.set_learning_rate`."""
        self._learning_rate = learning_rate

    def update(self, slots_T: Tensor, gradients_TD: Tensor) -> None:
        """One step of row-wise Adagrad; the gradients of a slot are summed first."""
        slots_U, places_T = torch.unique(slots_T, return_inverse=True)
        gradients_UD = gradients_TD.new_zeros(len(slots_U), gradients_TD.shape[1])
        gradients_UD.index_add_(0, places_T, gradients_TD)
        sums_U = self.sums_S[slots_U] + gradients_UD.square().mean(dim=1)
        self.sums_S[slots_U] = sums_U
        steps_U = -self._learning_rate / (sums_U.sqrt() + _EPSILON)
        self.rows_SD.index_add_(0, slots_U, gradients_UD * steps_U.unsqueeze(1))


class _UpdatedByBackward(torch.autograd.Function):
    """Gathers rows; the way back ends in their update. The anchor is what makes autograd come back at all."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, rows: TensorRows, slots_T: Tensor) -> Tensor:
        ctx.rows, ctx.slots_T = rows, slots_T
        return rows.rows_SD.index_select(0, slots_T)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradients_TD,) = gradients
        ctx.rows.update(ctx.slots_T, gradients_TD)
        return None, None, None
