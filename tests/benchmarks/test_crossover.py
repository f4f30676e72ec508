"""How matmul and scatter are compared."""

import pytest
import torch

from benchmarks.crossover import fit_crossover, small_table_crossover, summarize


def test_the_choice_is_set_against_the_better_way_within_rounds() -> None:
    """The machine slows down meanwhile, and in one round another process takes the core."""
    rounds = [
        {"matmul": 3.0 * slow, "scatter": 2.0 * slow, "auto": 2.1 * slow, "other_scatter": 5.0 * slow}
        for slow in (1.0, 2.0, 4.0, 1.0, 1.0)
    ]
    rounds[3]["auto"] *= 50
    found = summarize(rounds)
    assert found["best"] == "scatter"
    assert found["auto_vs_best"] == 1.05
    assert found["matmul_us"] == 3e6


def test_a_grid_is_measured_and_its_worst_point_given() -> None:
    found = small_table_crossover(torch.device("cpu"), rows=(2, 8), batches=(4, 16, 0), dim=3, num_rounds=3)
    assert [(point["rows"], point["ids"]) for point in found["grid"]] == [
        (2, 4),
        (2, 16),
        (2, 0),
        (8, 4),
        (8, 16),
        (8, 0),
    ]
    assert found["small_table_auto_vs_best"] == max(point["auto_vs_best"] for point in found["grid"])
    assert {point["auto"] for point in found["grid"]} == {"scatter"}
    assert found["matmul_wins"] == sum(point["best"] == "matmul" for point in found["grid"])


def point(rows: int, ids: int, matmul_us: float, scatter_us: float) -> dict[str, float]:
    return {"rows": rows, "ids": ids, "matmul_us": matmul_us, "scatter_us": scatter_us}


def test_the_fitted_crossover_chooses_best_on_what_was_measured() -> None:
    grid = [
        *(point(16, 256, 20, 10), point(16, 4096, 20, 100), point(16, 16384, 30, 110)),
        *(point(1024, 256, 20, 10), point(1024, 4096, 50, 100), point(1024, 16384, 220, 110)),
    ]
    found = fit_crossover([{"dim": 8, "grid": grid}])
    assert found == {"min_ids": 4096, "max_products": 1024 * 4096 * 8, "worst_vs_best": 1.0}


@pytest.mark.parametrize("matmul_us", [20.0, 10.0])
def test_where_a_matmul_never_wins_none_is_chosen(matmul_us: float) -> None:
    found = fit_crossover([{"dim": 8, "grid": [point(16, 256, matmul_us, 10)]}])
    assert found["max_products"] == 0
