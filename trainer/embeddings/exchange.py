"""Variable parts sent from every rank to every other, and how much was sent.

Shape suffixes: W ranks, N items, D width of a row.
"""

from typing import Any, Literal

import torch
import torch.distributed as dist
from fbgemm_gpu.quantize_comm import QuantizationContext, QuantizedCommCodec
from fbgemm_gpu.split_embedding_configs import SparseType
from torch import Tensor

Precision = Literal["fp32", "fp16", "bf16", "int8"]
_ROWS: dict[Precision, SparseType] = {
    "fp32": SparseType.FP32,
    "fp16": SparseType.FP16,
    "bf16": SparseType.BF16,
    "int8": SparseType.INT8,
}


class Exchange:
    """All-to-all over a process group of its own, so that it may run beside other collectives.

    Rows travel in the precision asked for, gradients too; with ``int8`` (8 bits a value, a scale and an offset a row)
    gradients travel as ``bf16``, for their small values would be lost beside their row's largest. Encoding is FBGEMM's
    ``QuantizedCommCodec``, which TorchRec's quantized communication uses. Alone, nothing is sent.

    Args:
        dim: Width of a row.
        precision: Of rows on their way.

    Attributes:
        num_ranks: W.
        rank: This process's number.
    """

    def __init__(self, *, dim: int, precision: Precision) -> None:
        self.num_ranks, self.rank = dist.get_world_size(), dist.get_rank()
        self._num_collectives = self._num_bytes = 0
        self._dim = dim
        self._group = dist.new_group() if self.num_ranks > 1 else None
        self._row_codec = QuantizedCommCodec(_ROWS[precision], row_dim=dim)
        self._gradient_codec = QuantizedCommCodec(
            SparseType.BF16 if precision == "int8" else _ROWS[precision], row_dim=dim, is_fwd=False
        )

    def take_counts(self) -> tuple[int, int]:
        """Collectives, and bytes sent to other ranks, since the last call."""
        counts = self._num_collectives, self._num_bytes
        self._num_collectives = self._num_bytes = 0
        return counts

    def counts(self, counts_W: Tensor) -> list[int]:
        """Tells every rank how many items it will get from this one; returns how many come from each."""
        received_W = torch.empty_like(counts_W)
        one_each = [1] * self.num_ranks
        self._all_to_all(received_W, counts_W, one_each, one_each)
        received: list[int] = received_W.tolist()
        return received

    def items(self, items: Tensor, *, send: list[int], receive: list[int]) -> Tensor:
        """Sends (N, ...) items, ``send[w]`` of them to rank w, one after another; returns those received."""
        received = items.new_empty(sum(receive), *items.shape[1:])
        self._all_to_all(received, items, receive, send)
        return received

    def rows(self, rows_ND: Tensor, *, send: list[int], receive: list[int]) -> Tensor:
        """`items` for float32 rows, in the exchange's precision; their gradients go the same way back.

        A gradient is divided by the number of ranks, as data-parallel training averages it.
        """
        if not torch.is_grad_enabled() or not rows_ND.requires_grad:
            return self._encoded(rows_ND, self._row_codec, send=send, receive=receive)
        there_and_back: Tensor = _RowsAndGradients.apply(rows_ND, self, send, receive)  # type: ignore[no-untyped-call]
        return there_and_back

    def gradients(self, gradients_ND: Tensor, *, send: list[int], receive: list[int]) -> Tensor:
        """`items` for gradients of rows, divided by the number of ranks."""
        return self._encoded(gradients_ND / self.num_ranks, self._gradient_codec, send=send, receive=receive)

    def _encoded(self, rows_ND: Tensor, codec: QuantizedCommCodec, *, send: list[int], receive: list[int]) -> Tensor:
        context = QuantizationContext(row_dim=self._dim)
        encoded = codec.encode(rows_ND.contiguous().view(-1), context)
        # int8 rows are wider than they were by their scale and offset.
        width = context.row_dim_quant if context.row_dim_quant > 0 else self._dim
        received = self.items(encoded.view(-1, width), send=send, receive=receive)
        decoded: Tensor = codec.decode(received.view(-1), context)
        return decoded.view(-1, self._dim)

    def _all_to_all(self, received: Tensor, sent: Tensor, receive: list[int], send: list[int]) -> None:
        """All-to-all of slices by point-to-point operations.

        The receives are posted first, so that a link carries both directions at once: gloo's own all-to-all was
        measured to take turns, at half of the link's speed, more often than not. NCCL's is made of the same operations.
        """
        slices, parts = torch.split(received, receive), torch.split(sent.contiguous(), send)
        slices[self.rank].copy_(parts[self.rank])
        others = [(self.rank + step) % self.num_ranks for step in range(1, self.num_ranks)]
        operations = [dist.P2POp(dist.irecv, slices[rank], rank, self._group) for rank in others if receive[rank]]
        operations += [dist.P2POp(dist.isend, parts[rank], rank, self._group) for rank in others if send[rank]]
        self._num_collectives += 1
        self._num_bytes += sum(parts[rank].numel() for rank in others) * sent.element_size()
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()


class _RowsAndGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_ND: Tensor, exchange: Exchange, send: list[int], receive: list[int]) -> Tensor:
        ctx.exchange, ctx.send, ctx.receive = exchange, send, receive
        return exchange._encoded(rows_ND, exchange._row_codec, send=send, receive=receive)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradients_ND,) = gradients
        return ctx.exchange.gradients(gradients_ND, send=ctx.receive, receive=ctx.send), None, None, None
