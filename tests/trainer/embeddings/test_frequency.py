from collections import Counter

from tests.trainer import tiny
from trainer.embeddings.frequency import count_impressions
from trainer.embeddings.hashing import hash_rows


def test_a_row_counts_the_impressions_of_all_ids_that_hash_to_it() -> None:
    config, columns = tiny.recipe().tables, tiny.columns()
    counts = count_impressions(columns, config)
    for table, ids, num_rows in (
        ("user", columns.user_id, config.num_user_rows),
        ("pin", columns.pin_id, config.num_pin_rows),
    ):
        rows = hash_rows(counts[table].new_tensor(ids.tolist()), num_rows=num_rows, seed=config.hash_seed)
        wanted = Counter(rows.tolist())
        assert counts[table].tolist() == [wanted[row] for row in range(num_rows)]
        assert int(counts[table].sum()) == columns.num_rows, "reads within histories do not count"
