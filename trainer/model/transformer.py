"""A pre-norm transformer block, for short sequences.

Shape suffixes: B sequences, L tokens, W width of a token, A attention heads, K width of a head.
"""

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

_MAX_WRITTEN_OUT = 64


class Block(nn.Module):
    """Self-attention and a feed-forward network of twice the width, each after a layer norm, added to their input.

    Attention over few tokens is written out: PyTorch's fused kernels are made for long sequences. Over many they keep
    no matrix of all pairs, and take a fourth of the time for hundreds of tokens on CPU.
    """

    def __init__(self, width: int, *, num_heads: int) -> None:
        super().__init__()
        assert width % num_heads == 0, (width, num_heads)
        self._num_heads = num_heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        nn.init.xavier_uniform_(self.query_key_value.weight)
        nn.init.zeros_(self.query_key_value.bias)
        nn.init.zeros_(self.attention_out.bias)

    def forward(self, tokens_BLW: Tensor, is_hidden_BL: Tensor) -> Tensor:
        """Returns tokens (B, L, W); nothing attends to those hidden; with none to attend to they mean nothing."""
        tokens_BLW = tokens_BLW + self._attend(self.attention_norm(tokens_BLW), is_hidden_BL)
        fed_BLW: Tensor = self.feed_forward(self.feed_forward_norm(tokens_BLW))
        return tokens_BLW + fed_BLW

    def _attend(self, tokens_BLW: Tensor, is_hidden_BL: Tensor) -> Tensor:
        size, length, width = tokens_BLW.shape
        head_width = width // self._num_heads
        heads = self.query_key_value(tokens_BLW).view(size, length, 3, self._num_heads, head_width)
        query_BALK, key_BALK, value_BALK = heads.permute(2, 0, 3, 1, 4).unbind(0)
        if length > _MAX_WRITTEN_OUT:
            seen_B11L = ~is_hidden_BL[:, None, None]
            attended_BALK = scaled_dot_product_attention(query_BALK, key_BALK, value_BALK, attn_mask=seen_B11L)
        else:
            scores_BALL = (query_BALK * head_width**-0.5) @ key_BALK.transpose(-1, -2)
            weights_BALL = scores_BALL.masked_fill(is_hidden_BL[:, None, None], float("-inf")).softmax(dim=-1)
            attended_BALK = weights_BALL @ value_BALK
        attended_BLW: Tensor = self.attention_out(attended_BALK.transpose(1, 2).reshape(tokens_BLW.shape))
        return attended_BLW
