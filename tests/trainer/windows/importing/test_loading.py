from pathlib import Path
from typing import Any

import pytest

from trainer.errors import InputError
from trainer.windows.importing.loading import load_mapping, parse_mapping
from trainer.windows.importing.mapping import Mapping

LEAST: dict[str, Any] = {
    "source": {"format": "csv"},
    "request_id": "visit",
    "user_id": "member",
    "pin_id": {"value": "item", "kind": "text"},
    "ts": "shown_at",
    "labels": {"save": "action == 'save'"},
}


def parsed(**changes: Any) -> Mapping:
    return parse_mapping({**LEAST, **changes}, "m.yaml")


def test_a_section_may_be_written_as_its_value() -> None:
    mapping = parsed(pin_features=["price", {"value": "age", "fill": 0}], user_features=[1])
    assert mapping.request_id.value == "visit"
    assert mapping.ts.format == "iso"
    assert [feature.fill for feature in mapping.pin_features] == [None, 0.0]
    assert mapping.user_features[0].value == "1"
    logs = mapping.logs("somewhere")
    assert (logs.labels, logs.num_user_features, logs.num_pin_features) == (("save",), 1, 2)


def test_save_comes_first_among_labels() -> None:
    mapping = parsed(labels={"hide": "h", "save": True, "click": "c"})
    assert mapping.label_names == ("save", "hide", "click")
    assert mapping.labels["save"] == "True"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"labelz": {}}, "labelz: no such key; did you mean 'labels'?"),
        ({"ts": {"value": "t", "zone": "UTC"}}, "ts.zone: no such key; did you mean 'time_zone'?"),
        ({"user_features": ["a", {"value": "b", "fil": 1}]}, "user_features.1.fil: no such key; did you mean 'fill'?"),
        ({"history": {"from_column": {"valu": "x"}}}, "history.from_column.valu: no such key; did you mean 'value'?"),
        ({"source": {"format": "csv", "xyz": 1}}, "source.xyz: no such key; the keys there are format, delimiter"),
        ({"ts": {"format": "s"}}, "ts.value: is missing; add that key"),
        ({"labels": {}}, "'save' is missing"),
        ({"labels": {"save": "1", "position": "1"}}, "'position' is a column of the contract"),
        ({"labels": {"save": "1", "Big": "1"}}, "'Big' is not of small letters"),
        ({"source": {"format": "xml"}}, "source.format: "),
        ({"source": {"format": "json", "delimiter": ";"}}, "delimiter belongs to format 'csv'"),
        ({"source": {"format": "csv", "delimiter": "||"}}, "'||' is not one character"),
        ({"source": {"format": "csv", "encoding": "klingon"}}, "'klingon' is not known"),
        ({"position": {"value": "a", "order_by": "b"}}, "give one of value and order_by"),
        ({"position": {"order_by": "b", "first": 1}}, "first belongs to value"),
        ({"request_id": {"value": "a", "hash": ["b"]}}, "give one of value and hash"),
        ({"request_id": {"value": "a", "within_minutes": 5}}, "within_minutes belongs to hash"),
        ({"ts": {"value": "t", "format": "seconds"}}, "'seconds' is none of iso, s, ms, us, ns"),
        ({"ts": {"value": "t", "format": "%f %Y"}}, "has %f elsewhere"),
        ({"history": {"from_labels": {"hide": 1}}}, "'hide' is no label"),
        ({"history": {"from_labels": {"save": 500}}}, "an action of 0 to 127"),
        ({"history": {"from_labels": {}}}, "name at least one label"),
        ({"history": {"from_column": {"value": "x"}, "known_after_s": 5}}, "give one of from_labels and from_column"),
        ({"user_features": []}, "name at least one each"),
        ({"on_bad_row": "ignore"}, "on_bad_row"),
        ({"engagements": {"user_id": "u", "pin_id": "p", "ts": "t", "labels": {"save": "1"}}}, "keep one"),
    ],
)
def test_a_mistake_is_one_line_with_the_keys_path(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as raised:
        parsed(**changes)
    line = str(raised.value)
    assert line.startswith("m.yaml: ")
    assert told in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "told"),
    [("a: [", "cannot be read as YAML"), ("", "holds no keys"), ("- a", "holds no keys"), ("1: x", "m.yaml")],
)
def test_a_file_that_is_no_mapping_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=told):
        load_mapping(file)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_mapping(tmp_path / "nope.yaml")
