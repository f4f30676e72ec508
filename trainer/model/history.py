"""The history transformer.

Shape suffixes: B rows, N ids of all histories together, L the longest history read, D width of a table row.
"""

import torch
from torch import Tensor, nn

from trainer.batches.batch import Batch
from trainer.embeddings.small import SmallTable
from trainer.model.transformer import Block
from trainer.recipe import ModelConfig

NUM_ACTIONS = 128  # history_actions is int8 and not negative


class HistoryTransformer(nn.Module):
    """Reads what a user engaged with lately, with the candidate early-fused (TransAct: Xia et al., KDD 2023).

    A token is the engaged pin's row plus an embedding of the action, beside the candidate's row. The output is the
    token of the most recent engagement beside the maximum over all tokens; zeros for a user without history.
    """

    def __init__(self, config: ModelConfig, *, dim: int) -> None:
        super().__init__()
        self._length = config.history_length
        self.width = 2 * dim
        self.action = SmallTable(NUM_ACTIONS, dim)
        self.position = nn.Parameter(torch.zeros(config.history_length, self.width))
        self.blocks = nn.ModuleList(
            Block(self.width, num_heads=config.num_attention_heads) for _ in range(config.num_transformer_layers)
        )

    @property
    def output_size(self) -> int:
        """Width of the output."""
        return 2 * self.width

    def forward(self, batch: Batch, history_ND: Tensor, candidate_BD: Tensor) -> Tensor:
        """Returns (B, `output_size`) float32."""
        pins_BLD = pad_histories(
            history_ND + self.action(batch.history_actions_N), batch.history_lengths_B, self._length
        )
        fused = torch.cat([pins_BLD, candidate_BD.unsqueeze(1).expand_as(pins_BLD)], dim=-1) + self.position
        is_padding_BL = torch.arange(self._length, device=fused.device) >= batch.history_lengths_B.unsqueeze(1)
        has_history_B1 = batch.history_lengths_B.unsqueeze(1) > 0
        # A row without history would attend to nothing, which is NaN: it attends to its padding, and is zeroed below.
        mask_BL = is_padding_BL & has_history_B1
        tokens = fused
        for block in self.blocks:
            tokens = block(tokens, mask_BL)
        latest = tokens[:, 0]
        maximum = tokens.masked_fill(is_padding_BL.unsqueeze(-1), float("-inf")).amax(dim=1)
        return torch.where(has_history_B1, torch.cat([latest, maximum], dim=-1), 0.0)


def pad_histories(values_ND: Tensor, lengths_B: Tensor, length: int) -> Tensor:
    """Jagged (N, D) to dense (B, ``length``, D), zeros behind each row's own."""
    place_N = torch.arange(len(values_ND), device=values_ND.device)
    row_N = torch.repeat_interleave(torch.arange(len(lengths_B), device=values_ND.device), lengths_B)
    place_N = place_N - (lengths_B.cumsum(0) - lengths_B)[row_N]
    padded = values_ND.new_zeros(len(lengths_B), length, values_ND.shape[-1])
    return padded.index_put((row_N, place_N), values_ND)
