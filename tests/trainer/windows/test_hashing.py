import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.windows.hashing import hash_ids, hash_strings

WORD = 2**64 - 1


def mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def by_hand(text: str, seed: int = 0) -> int:
    """As the module's docstring says it."""
    data = text.encode()
    word = mix(seed ^ len(data))
    for begin in range(0, len(data), 8):
        word = mix(word ^ int.from_bytes(data[begin : begin + 8], "little"))
    return word


@settings(deadline=None)
@given(st.lists(st.text(max_size=40)), st.integers(0, 3))
def test_strings_are_hashed_as_documented(texts: list[str], seed: int) -> None:
    assert hash_strings(pa.array(texts, pa.string()), seed).tolist() == [by_hand(text, seed) for text in texts]


def test_ids_of_text_are_pinned() -> None:
    assert hash_ids(pa.array(["pin-1", "", "a" * 17])).to_pylist() == [
        by_hand("pin-1") >> 1,
        by_hand("") >> 1,
        by_hand("a" * 17) >> 1,
    ]
    assert by_hand("pin-1") >> 1 == PINNED


PINNED = 1605582927623111646


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_every_encoding_and_any_slice_gives_the_same_ids(kind: pa.DataType) -> None:
    texts = ["user 1", None, "a longer name of a user", "user 1", ""]
    wanted = [None if text is None else by_hand(text) >> 1 for text in texts]
    column = pa.array(texts, pa.string()).cast(kind)
    assert hash_ids(column).to_pylist() == wanted
    assert hash_ids(column.slice(1, 3)).to_pylist() == wanted[1:4]
    assert hash_ids(pa.chunked_array([column, column])).to_pylist() == wanted * 2


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_lists_keep_their_shape(kind: pa.DataType) -> None:
    lists = pa.array([["a", "b"], None, [], ["c"]], kind)
    a, b, c = (by_hand(text) >> 1 for text in "abc")
    assert hash_ids(lists).to_pylist() == [[a, b], None, [], [c]]
    assert hash_ids(lists.slice(1)).to_pylist() == [None, [], [c]]
    fixed = pa.array([["a", "b"], ["c", "a"]], pa.list_(pa.string(), 2))
    assert hash_ids(fixed).to_pylist() == [[a, b], [c, a]]


def test_ids_are_never_negative_and_distinct() -> None:
    ids = hash_ids(pa.array([f"user {number}" for number in range(20_000)])).to_numpy()
    assert ids.min() >= 0
    assert len(np.unique(ids)) == 20_000
