import pytest
import torch
from torch import nn

from trainer.model.transformer import Block

WIDTH = 8


def reference(block: Block, num_heads: int) -> nn.TransformerEncoderLayer:
    """PyTorch's own pre-norm layer with a block's weights."""
    layer = nn.TransformerEncoderLayer(
        WIDTH, num_heads, dim_feedforward=2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
    )
    names = {
        "attention_norm": "norm1",
        "query_key_value.": "self_attn.in_proj_",
        "attention_out": "self_attn.out_proj",
        "feed_forward_norm": "norm2",
        "feed_forward.0": "linear1",
        "feed_forward.2": "linear2",
    }
    renamed = {}
    for name, tensor in block.state_dict().items():
        (old,) = (old for old in names if name.startswith(old))
        renamed[names[old] + name.removeprefix(old)] = tensor
    layer.load_state_dict(renamed)
    return layer


@pytest.mark.parametrize("num_heads", [1, 2])
@pytest.mark.parametrize("length", [7, 70])
def test_it_is_the_pre_norm_layer_of_the_textbook(num_heads: int, length: int) -> None:
    torch.manual_seed(0)
    block = Block(WIDTH, num_heads=num_heads)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)  # biases begin at zero, where they would hide a misplaced one
    tokens = torch.randn(5, length, WIDTH, requires_grad=True)
    is_hidden = torch.arange(length) >= torch.tensor([length, 1, 3, 6, 2]).unsqueeze(1)
    found, wanted = block(tokens, is_hidden), reference(block, num_heads)(tokens, src_key_padding_mask=is_hidden)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    gradients = [torch.autograd.grad(each.square().sum(), tokens)[0] for each in (found, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


def test_a_hidden_token_changes_no_other() -> None:
    torch.manual_seed(0)
    block, tokens = Block(WIDTH, num_heads=2), torch.randn(1, 4, WIDTH)
    is_hidden = torch.tensor([[False, True, False, False]])
    before = block(tokens, is_hidden)
    tokens[0, 1] += 1
    after = block(tokens, is_hidden)
    assert torch.equal(before[0, [0, 2, 3]], after[0, [0, 2, 3]])
