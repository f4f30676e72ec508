import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.errors import InputError
from trainer.windows.importing.expressions import Expression

TEXT = {
    "action": pa.array(["save", "click", None, "hide"]),
    "price": pa.array(["12.5", " 3 ", None, "1e2"]),
    "flag": pa.array(["true", "No", None, "1"]),
    "odd name": pa.array(["a", "B", None, "c"]),
}
TYPED = {
    "rank": pa.array([1, 2, None, 4]),
    "score": pa.array([0.5, -1.5, None, math.nan]),
    "seen": pa.array([True, False, None, True]),
    "user": pa.array([{"id": "a", "age": 3}, {"id": "b", "age": None}, None, {"id": "d", "age": 5}]),
    "kind": pa.array(["x", "y", None, "x"]).dictionary_encode(),
}


def values(text: str, columns: dict[str, pa.Array] = TEXT) -> list[Any]:
    found = Expression(text, "m.yaml: key").on(columns, 4)
    assert not any(bad.rows.fill_null(False).to_pylist().count(True) for bad in found.bad)
    done: list[Any] = found.values.to_pylist()
    return done


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("action", ["save", "click", None, "hide"]),
        ("'x'", ["x"] * 4),
        ("-1", [-1] * 4),
        ("action == 'save'", [True, False, None, False]),
        ("action != 'save'", [False, True, None, True]),
        ("action in ['save', 'click']", [True, True, None, False]),
        ("action not in ('save',)", [False, True, None, True]),
        ("action is None", [False, False, True, False]),
        ("action is not None", [True, True, False, True]),
        ("action is None or action == 'save'", [True, False, True, False]),
        ("action == 'save' and price > 100", [False, False, None, False]),
        ("not action == 'hide'", [True, True, None, False]),
        ("price", ["12.5", " 3 ", None, "1e2"]),
        ("price > 3", [True, False, None, True]),
        ("3 < price <= 12.5", [True, False, None, False]),
        ("price in [3, 100]", [False, True, None, True]),
        ("price * 2 + 1", [26.0, 7.0, None, 201.0]),
        ("(price - 3) / 2", [4.75, 0.0, None, 48.5]),
        ("-price", [-12.5, -3.0, None, -100.0]),
        ("abs(-price)", [12.5, 3.0, None, 100.0]),
        ("floor(price)", [12.0, 3.0, None, 100.0]),
        ("flag", ["true", "No", None, "1"]),
        ("flag == True", [True, False, None, True]),
        ("not flag", [False, True, None, False]),
        ("column('odd name')", ["a", "B", None, "c"]),
        ("lower(column('odd name')) == 'b'", [False, True, None, False]),
        ("(action == 'save') + 1", [2.0, 1.0, None, 1.0]),
    ],
)
def test_it_computes_on_text(text: str, wanted: list[Any]) -> None:
    assert values(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rank == 2", [False, True, None, False]),
        ("rank in [1, 4]", [True, False, None, True]),
        ("rank / 2", [0.5, 1.0, None, 2.0]),
        ("rank > score", [True, True, None, False]),
        ("seen and rank > 1", [False, False, None, True]),
        ("seen == 1", [True, False, None, True]),
        ("user.id", ["a", "b", None, "d"]),
        ("user.age > 3", [False, None, None, True]),
        ("column('user').age", [3, None, None, 5]),
        ("user.nope is None", [True] * 4),
        ("kind == 'x'", [True, False, None, True]),
    ],
)
def test_it_computes_on_typed_columns(text: str, wanted: list[Any]) -> None:
    assert values(text, TYPED) == wanted


def test_log1p_is_that_of_numbers() -> None:
    found = values("log1p(price)")
    assert found[2] is None
    assert [found[0], found[1]] == pytest.approx([math.log1p(12.5), math.log1p(3)])


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "open('x')",
        "[x for x in action]",
        "lambda: 1",
        "price ** 2",
        "price % 2",
        "price // 2",
        "f'{price}'",
        "action[0]",
        "action in price",
        "action in []",
        "action in [price]",
        "price is 3",
        "lower(action, price)",
        "lower(x=action)",
        "column(action)",
        "b'x'",
        "1j",
        "(a := 1)",
        "a if b else c",
        "*a",
        "~rank",
        "{1: 2}",
        "...",
    ],
)
def test_what_is_not_of_the_language_is_refused_when_parsed(text: str) -> None:
    with pytest.raises(InputError, match=r"^m.yaml: key: `.*`, character \d+: .*; use "):
        Expression(text, "m.yaml: key")


@pytest.mark.parametrize("text", ["", "a ==", "1 2", "a = 1", "\x00", "(" * 300, "-" * 5000 + "1", "a\nb", "'" * 11000])
def test_what_does_not_parse_is_told(text: str) -> None:
    with pytest.raises(InputError, match=r"^m\.yaml: key: "):
        Expression(text, "m.yaml: key")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 + actoin", r"character 5: the source has no column 'actoin'; write 'action'"),
        ("zzzzz", r"has no column 'zzzzz'; choose one of action, price, flag, odd name"),
        ("price.__class__", r"character 1: '\.__class__' of what is text"),
        ("lower(1)", "character 7: is number where text is wanted"),
        ("action > 'a' > 1", "character 10: text is compared with a number; drop the quotes"),
        ("action in ['a', 1]", "character 11: the list mixes text and numbers"),
    ],
)
def test_what_does_not_fit_the_columns_is_told_with_its_position(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        values(text)


def test_text_that_is_no_number_is_told_by_row() -> None:
    found = Expression("action > 3", "key").on(TEXT, 4)
    (bad,) = found.bad
    assert bad.rows.to_pylist() == [True, True, False, True]
    assert bad.what == "'action' is not a number"


def test_a_record_compared_is_told() -> None:
    with pytest.raises(InputError, match="record is compared with text"):
        values("user == 'a'", TYPED)


def test_columns_are_those_that_are_read() -> None:
    expression = Expression("lower(a) == 'x' and column('b c') > user.id", "key")
    assert set(expression.columns) == {"a", "b c", "user"}


OPERANDS = st.sampled_from(["a", "b", "1", "2.5", "-3"])


@settings(deadline=None)
@given(
    st.recursive(
        OPERANDS, lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda part: f"({' '.join(part)})")
    ),
    st.floats(-1e3, 1e3),
    st.integers(-1000, 1000),
)
def test_arithmetic_is_that_of_python(text: str, a: float, b: int) -> None:
    found = Expression(text, "key").on({"a": pa.array([a]), "b": pa.array([str(b)])}, 1).values.cast(pa.float64())
    assert found[0].as_py() == pytest.approx(eval(text, {"a": a, "b": b}), rel=1e-9, abs=1e-9)
