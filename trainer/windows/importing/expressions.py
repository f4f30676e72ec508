"""The small language of a mapping's values: columns, constants, comparisons, ``and``/``or``/``not``, lists, arithmetic.

A text is parsed by Python's own grammar, held against a list of what is allowed, and computed on columns by
``pyarrow.compute``; nothing of it is ever run as Python. Text is read as a number where it meets one, since CSV holds
nothing but text.

Shape legend: N rows of a chunk.
"""

import ast
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trainer.errors import InputError
from trainer.windows.importing.casting import Cast, as_numbers, as_truths, kind_of, plain

MAX_LENGTH = 10_000

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: pc.add,
    ast.Sub: pc.subtract,
    ast.Mult: pc.multiply,
    ast.Div: pc.divide,
}
_NUMBER_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"abs": pc.abs, "floor": pc.floor, "log1p": pc.log1p}
_WORDS = "columns, constants, == != < <= > >=, in, is None, and, or, not, + - * /, column(), lower(), " + ", ".join(
    f"{name}()" for name in _NUMBER_FUNCTIONS
)


@dataclass(frozen=True, kw_only=True)
class BadRows:
    """Rows that a value could not be read from.

    Attributes:
        rows: Bool (N,), true where that is.
        what: What they hold, and what was wanted.
    """

    rows: pa.BooleanArray
    what: str


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an expression gave on a chunk.

    Attributes:
        values: (N,); null where it is unknown.
        bad: Rows that could not be computed.
    """

    values: pa.Array
    bad: tuple[BadRows, ...]


class Expression:
    """One parsed text.

    Args:
        text: As the mapping has it.
        place: Where the mapping has it, such as ``labels.save``, for what is said when it does not fit.

    Raises:
        InputError: It is no expression, or uses what the language does not have.
    """

    def __init__(self, text: str, place: str) -> None:
        self.text, self.place = text, place
        self._asked: dict[str, ast.Attribute] = {}
        self._met: set[str] = set()
        if len(text) > MAX_LENGTH:
            raise InputError(f"{place}: {len(text):,} characters are too long; write {MAX_LENGTH:,} at most")
        try:
            self._root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            offset = getattr(error, "offset", None) or 1
            raise self._mistake(offset, f"cannot be read ({getattr(error, 'msg', error)})", f"use {_WORDS}") from None
        try:
            _Checker(self).check(self._root)
        except RecursionError:
            raise self._mistake(1, "is nested too deeply", "split it over columns of the source") from None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the source's columns that it reads, the first part of a dotted one."""
        return tuple(dict.fromkeys(name for name, _ in self._names()))

    def on(self, chunk: Mapping[str, pa.Array], num_rows: int) -> Found:
        """Computes it.

        Args:
            chunk: The columns that it reads, (N,) each.
            num_rows: N; a constant is repeated that often.

        Raises:
            InputError: A column or a field within one is not there, or kinds do not go together; with the position.
        """
        computing = _Computing(self, chunk)
        values = computing.compute(self._root)
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, num_rows)
        return Found(values=values, bad=tuple(computing.bad))

    def check_columns(self, known: Iterable[str], file: str) -> None:
        """Holds its columns against those of a file.

        Raises:
            InputError: One is not there; the line names the nearest.
        """
        known = list(known)
        for name, node in self._names():
            if name not in known:
                raise self.unknown_column(name, node, known, file)

    def note_field(self, node: ast.Attribute, *, is_there: bool) -> None:
        """Takes note of whether a chunk's records have a field."""
        self._asked[ast.unparse(node)] = node
        if is_there:
            self._met.add(ast.unparse(node))

    def check_fields(self) -> None:
        """After the last chunk: a field of a record that no record had is a mistake.

        Raises:
            InputError: There is one.
        """
        for name, node in self._asked.items():
            if name not in self._met:
                raise self.mistake_at(node, f"no record has '{name}'", "mend the name")

    def unknown_column(self, name: str, node: ast.AST | None, known: Iterable[str], file: str) -> InputError:
        """The line for a column that `file` does not have."""
        near = difflib.get_close_matches(name, known := list(known), n=1)
        named = f"write '{near[0]}'" if near else f"choose one of {', '.join(known[:20]) or 'none'}"
        offset = 1 if node is None else getattr(node, "col_offset", 0) + 1
        return self._mistake(offset, f"{file} has no column '{name}'", named)

    def _names(self) -> list[tuple[str, ast.AST]]:
        found: list[tuple[str, ast.AST]] = []
        for node in ast.walk(self._root):
            if isinstance(node, ast.Name) and node.id not in _FUNCTIONS:
                found.append((node.id, node))
            elif _is_column_call(node):
                assert isinstance(node, ast.Call) and isinstance(node.args[0], ast.Constant)
                found.append((str(node.args[0].value), node))
        return found

    def _mistake(self, offset: int, what: str, remedy: str) -> InputError:
        return InputError(f"{self.place}: `{self.text}`, character {offset}: {what}; {remedy}")

    def mistake_at(self, node: ast.AST, what: str, remedy: str) -> InputError:
        """The line for what is wrong at a node."""
        return self._mistake(getattr(node, "col_offset", 0) + 1, what, remedy)


_FUNCTIONS = ("column", "lower", *_NUMBER_FUNCTIONS)


def _is_column_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "column"


@dataclass(frozen=True)
class _Checker:
    """Refuses every node that the language does not have, before any row is read."""

    expression: Expression

    def check(self, node: ast.AST) -> None:
        children = self._children(node)
        if children is None:
            name = type(node).__name__
            raise self.expression.mistake_at(node, f"'{name}' is not of the language", f"use {_WORDS}")
        for child in children:
            self.check(child)

    def _children(self, node: ast.AST) -> list[ast.expr] | None:
        match node:
            case ast.Name() | ast.Constant(value=str() | int() | float() | None):
                return []
            case ast.Attribute(value=ast.Name() | ast.Attribute() | ast.Call() as value):
                return [value]
            case ast.BoolOp(values=values):
                return values
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
                return [operand]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return [left, right]
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._of_comparison(left, ops, comparators)
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
                if name == "column" and not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    return None
                return [argument]
        return None

    def _of_comparison(
        self, left: ast.expr, ops: list[ast.cmpop], comparators: list[ast.expr]
    ) -> list[ast.expr] | None:
        children = [left]
        for op, right in zip(ops, comparators, strict=True):
            if isinstance(op, ast.In | ast.NotIn):
                if not (isinstance(right, ast.List | ast.Tuple) and right.elts):
                    return None
                children.extend(right.elts)
                if not all(isinstance(_literal(item), str | int | float) for item in right.elts):
                    return None
            elif isinstance(op, ast.Is | ast.IsNot):
                if not (isinstance(right, ast.Constant) and right.value is None):
                    return None
            elif type(op) in _COMPARISONS:
                children.append(right)
            else:
                return None
        return children


def _literal(node: ast.expr) -> Any:
    """A constant, with its sign; None when it is no constant."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    return None


@dataclass(frozen=True)
class _Computing:
    """Walks the tree once over one chunk; values are arrays (N,) or scalars."""

    expression: Expression
    chunk: Mapping[str, pa.Array]
    bad: list[BadRows] = field(default_factory=list)

    def compute(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return pa.scalar(value, pa.float64() if type(value) is float else None)
            case ast.Name(id=name):
                return self._column(name, node)
            case ast.Attribute(value=parent):
                return self._field(self.compute(parent), node)
            case ast.BoolOp(op=op, values=values):
                return self._all_of(op, values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return pc.invert(self._truths(self.compute(operand), operand))
            case ast.UnaryOp(op=op, operand=operand):
                numbers = self._numbers(self.compute(operand), operand)
                return pc.negate(numbers) if isinstance(op, ast.USub) else numbers
            case ast.BinOp(left=left, op=op, right=right):
                numbers = [self._numbers(self.compute(side), side) for side in (left, right)]
                return _ARITHMETIC[type(op)](*numbers)
            case ast.Compare():
                return self._compare(node)
            case ast.Call(func=ast.Name(id="column"), args=[ast.Constant(value=name)]):
                return self._column(str(name), node)
            case ast.Call(func=ast.Name(id="lower"), args=[argument]):
                return pc.utf8_lower(self._of_kind(self.compute(argument), "text", argument))
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return _NUMBER_FUNCTIONS[name](self._numbers(self.compute(argument), argument))
        raise AssertionError(f"passed the check: {ast.dump(node)}")

    def _column(self, name: str, node: ast.AST) -> pa.Array:
        if name not in self.chunk:
            raise self.expression.unknown_column(name, node, self.chunk, "the source")
        return plain(self.chunk[name])

    def _field(self, record: Any, node: ast.Attribute) -> Any:
        name = node.attr
        if kind_of(record.type) == "nothing":
            self.expression.note_field(node, is_there=False)
            return record
        if not pa.types.is_struct(record.type):
            raise self.expression.mistake_at(node, f"'.{name}' of what is {kind_of(record.type)}", "name a record")
        names = [record.type.field(index).name for index in range(record.type.num_fields)]
        self.expression.note_field(node, is_there=name in names)
        if name not in names:
            return pa.nulls(len(record))  # of one block of JSON; another may well have it
        return plain(pc.struct_field(record, names.index(name)))

    def _all_of(self, op: ast.boolop, nodes: list[ast.expr]) -> Any:
        join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
        joined, *others = [self._truths(self.compute(node), node) for node in nodes]
        for other in others:
            joined = join(joined, other)
        return joined

    def _compare(self, node: ast.Compare) -> Any:
        left_node, joined = node.left, None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            found = self._compare_two(left_node, op, right_node)
            joined = found if joined is None else pc.and_kleene(joined, found)
            left_node = right_node
        return joined

    def _compare_two(self, left_node: ast.expr, op: ast.cmpop, right_node: ast.expr) -> Any:
        left = self.compute(left_node)
        if isinstance(op, ast.Is | ast.IsNot):
            return pc.is_null(left) if isinstance(op, ast.Is) else pc.is_valid(left)
        if isinstance(op, ast.In | ast.NotIn):
            assert isinstance(right_node, ast.List | ast.Tuple)
            found = self._is_in(left, left_node, right_node)
            return found if isinstance(op, ast.In) else pc.invert(found)
        left, right = self._alike(left, left_node, self.compute(right_node), right_node)
        return _COMPARISONS[type(op)](left, right)

    def _is_in(self, value: Any, node: ast.expr, items: ast.List | ast.Tuple) -> Any:
        wanted = [_literal(item) for item in items.elts]
        if len({isinstance(item, str) for item in wanted}) > 1:
            raise self.expression.mistake_at(items, "the list mixes text and numbers", "write one kind")
        if isinstance(wanted[0], str):
            value = self._of_kind(value, "text", node)
            found = pc.is_in(value, pa.array(wanted, pa.string()))
        else:
            value = self._numbers(value, node)
            found = pc.is_in(value, pa.array([float(item) for item in wanted], pa.float64()))
        # Arrow says false of a null; here it is unknown, as in a comparison.
        return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))

    def _alike(self, left: Any, left_node: ast.expr, right: Any, right_node: ast.expr) -> tuple[Any, Any]:
        """Both sides as one kind: text meets a number as a number, and a truth as a truth."""
        kinds = {kind_of(left.type), kind_of(right.type)} - {"nothing"}
        if kinds <= {"text"}:
            return left.cast(pa.string()), right.cast(pa.string())
        if kinds <= {"number"} and pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
            return left, right
        if kinds <= {"truth", "text"} and "truth" in kinds:
            return self._truths(left, left_node), self._truths(right, right_node)
        if kinds <= {"number", "text", "truth"}:
            for value, node, other in ((left, left_node, right), (right, right_node, left)):
                if isinstance(value, pa.Scalar) and kind_of(value.type) == "text" and kind_of(other.type) == "number":
                    raise self.expression.mistake_at(node, "text is compared with a number", "drop the quotes")
            return self._numbers(left, left_node), self._numbers(right, right_node)
        if kinds == {"time"}:
            return left, right
        raise self.expression.mistake_at(
            left_node, f"{kind_of(left.type)} is compared with {kind_of(right.type)}", "compare two of one kind"
        )

    def _numbers(self, value: Any, node: ast.expr) -> Any:
        if kind_of(value.type) not in ("number", "text", "truth", "nothing"):
            raise self.expression.mistake_at(node, f"is {kind_of(value.type)} where a number is wanted", "name another")
        return self._cast(as_numbers, value, node, "a number")

    def _truths(self, value: Any, node: ast.expr) -> Any:
        if kind_of(value.type) not in ("number", "text", "truth", "nothing"):
            raise self.expression.mistake_at(node, f"is {kind_of(value.type)} where a truth is wanted", "compare it")
        return self._cast(as_truths, value, node, "true or false")

    def _of_kind(self, value: Any, kind: str, node: ast.expr) -> Any:
        if kind_of(value.type) not in (kind, "nothing"):
            raise self.expression.mistake_at(node, f"is {kind_of(value.type)} where {kind} is wanted", "mend the kinds")
        return value.cast(pa.string())

    def _cast(self, cast: Callable[[pa.Array], Cast], value: Any, node: ast.expr, wanted: str) -> Any:
        if isinstance(value, pa.Scalar):
            done = cast(pa.array([value.as_py()], value.type))
            if done.bad is not None:
                raise self.expression.mistake_at(node, f"'{value}' is not {wanted}", "mend that constant")
            return done.values[0]
        done = cast(value)
        if done.bad is not None:
            self.bad.append(BadRows(rows=done.bad, what=f"'{ast.unparse(node)}' is not {wanted}"))
        return done.values
