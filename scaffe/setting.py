"""Settings: one definition of a record's field, its flag, its key in a TOML file and its line in the documentation.

A record is a frozen dataclass whose fields are made by `setting`. A record outside of this package gives the same as
plain metadata: a dictionary of the arguments of `setting` but the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from math import inf
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from scaffe.errors import ScaffeError

P = ParamSpec("P")
Result = TypeVar("Result")
Record = TypeVar("Record", bound=Any)

NOUNS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def setting(
    default: Any,
    help: str,
    *,
    names: Callable[[], str] | None = None,
    metavar: str = "",
    choices: Sequence[str] | Callable[[], Sequence[str]] = (),
    flag: str = "",
    rare: bool = False,
    parse: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a dataclass field: a setting with its default, and one line on its meaning.

    `metavar` and `choices` describe its values. Where these are registered ones, functions return them: `choices` all
    of them, or `names` those that --help lists after the meaning. The documentation's table lists no registered ones.
    `flag` is the flag's name where it is not the field's. A `rare` setting is listed by --help-all alone. `parse`
    converts the value of a flag or a file to the field's type, and raises ValueError.
    """
    about = {
        "help": help,
        "names": names,
        "metavar": metavar,
        "choices": choices,
        "flag": flag,
        "rare": rare,
        "parse": parse,
    }
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Setting:
    """One field of a record, with what `setting` was given."""

    name: str
    default: Any
    help: str
    names: Callable[[], str] | None = None
    metavar: str = ""
    choices: Sequence[str] | Callable[[], Sequence[str]] = ()
    flag: str = ""
    rare: bool = False
    parse: Callable[[Any], Any] | None = None

    @property
    def key(self) -> str:
        """Its name in a TOML file."""
        return self.name.replace("_", "-")

    @property
    def flag_name(self) -> str:
        """Its name on the command line, without dashes."""
        return self.flag or self.key

    @property
    def destination(self) -> str:
        """Its name among parsed arguments."""
        return self.flag_name.replace("-", "_")

    @property
    def shown(self) -> str:
        """The default, as a flag or a file has it."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:.12g}" if isinstance(self.default, float) else str(self.default)

    @property
    def text(self) -> str:
        """One line on its meaning, with the registered names."""
        return f"{self.help}: {self.names()}" if self.names else self.help

    @property
    def values(self) -> Sequence[str]:
        """The values that it can have, where these are few."""
        return self.choices() if callable(self.choices) else self.choices

    def from_file(self, given: object) -> Any:
        """Return the value of a TOML file as the field's. Raise ScaffeError where it has another type."""
        return self._checked(self._parsed(given, self.key), given, self.key)

    def from_keyword(self, given: object) -> Any:
        """Return a record's value as the field's. Raise ScaffeError where it has another type."""
        kind = type(self.default)
        parses = self.parse and not isinstance(_as_kind(given, kind), kind)
        return self._checked(self._parsed(given, self.name) if parses else given, given, self.name)

    def _parsed(self, given: object, name: str) -> object:
        try:
            return self.parse(given) if self.parse else given
        except ValueError as error:
            raise ScaffeError(f"{name}: {error}") from None

    def _checked(self, value: object, given: object, name: str) -> Any:
        kind = type(self.default)
        value = _as_kind(value, kind)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ScaffeError(f"{name} must be {NOUNS[kind]}, got {given!r}")
        return value


def _as_kind(value: Any, kind: type) -> object:
    """Return a number or a path as the type of a field; any other value as it is."""
    if isinstance(value, bool):
        return value
    if kind is int and isinstance(value, Integral):
        return int(value)
    if kind is float and isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf  # type: ignore[operator]
    return os.fspath(value) if kind is str and isinstance(value, os.PathLike) else value


def settings_of(record: type) -> list[Setting]:
    """Return the settings of a record's class, in the order of its fields."""
    return [Setting(one.name, one.default, **one.metadata) for one in fields(record)]


def with_flags(record: Record, given: Mapping[str, Any]) -> Record:
    """Return the record with the fields replaced for which a flag was given; `given` maps destinations to values."""
    values = {one.name: given.get(one.destination) for one in settings_of(type(record))}
    return replace(record, **{name: value for name, value in values.items() if value is not None})


def moved(names: Mapping[str, str]) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Return a decorator: a call with a keyword of `names` raises ScaffeError, with what to write instead."""

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            for name in kwargs:
                if name in names:
                    raise ScaffeError(f"{name}= has moved: write {names[name]}")
            return function(*args, **kwargs)

        return call

    return decorate


def check_fields(record: object, kind: type) -> None:
    """Convert the values of a new record to the types of the fields of its class, `kind`.

    A record's __post_init__ calls it first. Raise ScaffeError for a value of another type.
    """
    for one in settings_of(kind):
        object.__setattr__(record, one.name, one.from_keyword(getattr(record, one.name)))  # the record is frozen


def check_record(name: str, given: object, kind: type) -> None:
    """Raise ScaffeError unless an argument is the record that it should be."""
    if not isinstance(given, kind):
        raise ScaffeError(f"{name}= takes a record, {kind.__name__}(...), got {given!r}")


def parse_share(given: object) -> object:
    """Return a share such as "3%" as a number, 0.03; a number as it is. Raise ValueError for other text."""
    if not isinstance(given, str):
        return given
    try:
        return float(given[:-1]) / 100 if given.endswith("%") else float(given)
    except ValueError:
        raise ValueError(f"expected a share such as 3%, got '{given}'") from None


def parse_bytes(text: str) -> float:
    """Return the bytes that "0", "4M", "64K" or "inf" name. Raise ValueError for anything else."""
    if text == "inf":
        return inf
    unit = UNITS.get(text[-1:].upper(), 1)
    number = int(text[:-1] if unit > 1 else text) * unit
    if number < 0:
        raise ValueError(text)
    return number
