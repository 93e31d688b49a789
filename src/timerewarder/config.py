"""Configuration: frozen dataclass <-> JSON file. The command line is made from the same dataclasses (see cli/).

An unknown key, a missing key without default or a value of the wrong type is an error that names the nearest key,
never a silent default: a saved configuration means what it meant when it was written.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from typing import Any, Literal, TypeVar, Union

from timerewarder.errors import UserError

C = TypeVar("C")


def to_dict(config: Any) -> dict[str, Any]:
    """A frozen dataclass as plain JSON values."""
    return dataclasses.asdict(config)


def from_dict(cls: type[C], values: dict[str, Any], where: str = "config") -> C:
    """The inverse of `to_dict`, strict: unknown keys and wrong types raise UserError."""
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected an object with the fields of {cls.__name__}, found {type(values).__name__}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise UserError(f"{where}: unknown key {key!r}{nearest(key, fields)}")
    return cls(**{key: _checked(hints[key], value, f"{where}.{key}") for key, value in values.items()})


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """`'; did you mean ...?'` when a known word is close, else the list of known words."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else f"; known: {', '.join(known)}"


def differing_keys(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[str]:
    """The keys, dotted, on which two nested dictionaries differ."""
    keys: list[str] = []
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            keys += differing_keys(left, right, f"{prefix}{key}.")
        elif left != right:
            keys.append(prefix + key)
    return keys


def _checked(hint: Any, value: Any, where: str) -> Any:
    """`value` if it fits the type `hint` (integers become floats, lists become tuples), else UserError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        kinds = [argument for argument in arguments if argument is not type(None)]
        for kind in kinds[:-1]:
            try:
                return _checked(kind, value, where)
            except UserError:
                continue
        return _checked(kinds[-1], value, where)
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{where}: {value!r} is not one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_checked(arguments[0], item, where) for item in value)
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and (not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)):
        raise UserError(f"{where}: expected {hint.__name__}, found {value!r}")
    return value
