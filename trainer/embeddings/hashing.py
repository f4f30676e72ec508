"""Any non-negative 64-bit id -> a row of a table, the same in every process and on every device."""

from torch import Tensor

_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def hash_rows(ids: Tensor, *, num_rows: int, seed: int) -> Tensor:
    """Hashes ids into rows with SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

    Args:
        ids: int64 of any shape.
        num_rows: Rows of the table.
        seed: Which of the hash functions.

    Returns:
        int64 of the same shape, in [0, num_rows).
    """
    mixed = ids + _signed(_GOLDEN * (seed + 1))
    mixed = (mixed ^ _shift_right(mixed, 30)) * _signed(_MIX_1)
    mixed = (mixed ^ _shift_right(mixed, 27)) * _signed(_MIX_2)
    mixed = mixed ^ _shift_right(mixed, 31)
    return _shift_right(mixed, 1) % num_rows


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """Logical shift; torch's own keeps the sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """The int64 with the lowest 64 bits of ``value``."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
