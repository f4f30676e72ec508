"""What remedies do to single rows; whole steps with them are in ``tests/trainer/embeddings/test_row_updates.py``."""

import math

import torch

from trainer.thaw.remedies import Admission, FrequencyRate, Shrinkage

OLD_TD = torch.tensor([[1.0, -2.0], [4.0, 8.0], [1.0, 1.0], [2.0, 2.0]])
NEW_TD = torch.tensor([[2.0, -1.0], [6.0, 4.0], [3.0, 3.0], [1.0, 1.0]])
NONE_T = torch.ones(4, dtype=torch.int64)


def test_a_frequency_rate_takes_a_share_of_each_update_and_at_most_all_of_it() -> None:
    counts_T = torch.tensor([0, 4, 16, 999])
    found = FrequencyRate(full_count=16, power=0.5).apply(OLD_TD, NEW_TD, counts_T, NONE_T)
    assert torch.equal(found[0], OLD_TD[0])
    assert torch.equal(found[1], torch.tensor([5.0, 6.0]))
    assert torch.equal(found[2:], NEW_TD[2:])


def test_a_decay_takes_a_share_of_the_row_before_the_update() -> None:
    found = Shrinkage(share=0.25, by_step=False).apply(OLD_TD, NEW_TD, NONE_T, torch.tensor([1, 5, 9, 100]))
    assert torch.equal(found, NEW_TD - 0.25 * OLD_TD)


def test_an_interval_decay_takes_that_share_for_each_step_and_at_most_the_row() -> None:
    found = Shrinkage(share=0.25, by_step=True).apply(OLD_TD, NEW_TD, NONE_T, torch.tensor([1, 2, 4, 100]))
    shares_T = torch.tensor([[0.25], [0.5], [1.0], [1.0]])
    assert torch.equal(found, NEW_TD - shares_T * OLD_TD)


def test_an_admission_is_alike_until_it_opens() -> None:
    late, never = Admission(rare_below=3, rare_from=2.0), Admission(rare_below=3, rare_from=math.inf)
    assert late.through(2) == never.through(2)
    assert late.through(3) != never.through(3)
