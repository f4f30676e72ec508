import torch

from benchmarks.order import check_order


def test_every_mode_keeps_the_order_of_training_by_hand(device: torch.device) -> None:
    """Sync and exact read fresh rows, semi rows that lack one update, to the bit, held up wherever it hurts."""
    found = check_order(device, num_trials=2)
    assert all(found.values()), found
