"""Settings of a training run: all its records, out of a TOML file and flags.

python -m scaffe.training.settings prints them as a table of the documentation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from readers import ReaderError, Reading
from readers.files import open_input
from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.monitor.watching import SAY, SHRINK, Watching
from scaffe.near import near
from scaffe.parallel.drive import Hook
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.owners import ROOT
from scaffe.parallel.run import AUTO, Run
from scaffe.setting import check_record, settings_of, with_flags

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _record(default: Any, title: str) -> Any:
    return field(default=default, metadata={"title": title})


@dataclass(frozen=True)
class Settings:
    """The records of a training run. A field's name is Solver's keyword, and the table of a file.

    A new record is a dataclass of `scaffe.setting.setting`, a field here, and a keyword of Solver.
    """

    compute: Compute = _record(Compute(), "computing")
    run: Run = _record(Run(), "ranks")
    instances: Instances = _record(Instances(), "instances of a rank")
    reading: Reading = _record(Reading(), "data")
    watching: Watching = _record(Watching(), "watching")

    def __post_init__(self) -> None:
        for one in fields(self):
            check_record(one.name, getattr(self, one.name), type(one.default))
        if self.instances.n != "1":
            self._check_instances()

    def _check_instances(self) -> None:
        """Raise ScaffeError for what several instances of a rank can't have."""
        n = self.instances.n
        if self.run.drive == Hook.name:
            raise ScaffeError(
                f"--drive {Hook.name} with --instances {n}: the main thread computes no layers where there are several "
                "instances; leave --drive out"
            )
        if self.reading.readers == "single":
            raise ScaffeError(
                f"--readers single with --instances {n}: each instance reads its own records; leave --readers out"
            )
        if self.compute.profile:
            raise ScaffeError(f"--compute replay with --instances {n}: a replay has one instance")

    def check_broadcasts(self) -> None:
        """Raise ScaffeError for broadcasts in numbers that layers do not multiply, or of parameters not broadcast."""
        given = f"--broadcast-numbers {self.run.broadcast_numbers}"
        if self.run.broadcast_numbers == "float32":
            return
        if self.run.sync == "allreduce":
            raise ScaffeError(
                f"{given} with --sync allreduce: every rank updates its own parameters, and none are broadcast; "
                "leave --broadcast-numbers out"
            )
        if self.compute.numbers != "bf16":
            raise ScaffeError(
                f"{given} with --compute {self.compute.numbers}: layers would multiply weights that the root's do not "
                "have; give --compute bf16, or leave --broadcast-numbers out"
            )

    def check_owners(self) -> None:
        """Raise ScaffeError where the ranks that are left could not hand on a history that several own."""
        self.run.check_owners()
        if self.run.owners != ROOT and self.run.shrinks and self.instances.n == AUTO:
            raise ScaffeError(
                f"--owners {self.run.owners} with --on-rank-loss shrink and --instances auto: give a number"
            )

    def check_launch(self) -> None:
        """Raise ScaffeError for more launch groups than instances, where their number is given."""
        n, groups = self.instances.n, self.instances.launch_groups
        if n.isdigit() and groups > int(n):
            text = f"--launch-groups {groups}: each rank has {n} instance(s); give as many groups or fewer"
            raise ScaffeError(text + ", or --instances" * (n == "1"))

    def check_stall(self) -> None:
        """Raise ScaffeError where ranks that hang can't be given up, or can't end the job."""
        how = self.watching.at_stall
        if how == SHRINK and not self.run.shrinks:
            raise ScaffeError(
                "--stall shrink without --on-rank-loss shrink: the job would end with the rank that is given up; "
                "give both"
            )
        if how != SAY and not self.watching.stall_seconds:
            raise ScaffeError(f"--stall {how} with --stall-seconds 0: no rank is watched; give the seconds")

    def agreed(self) -> dict[str, str]:
        """Return what all ranks must have alike, for World.agree; a rank's number of threads is its own."""
        watching = self.watching
        return {
            "the scaling": self.run.scaling,
            "the run's settings": str(self.run),
            "the instances' settings": str(self.instances),
            "the reading": str(self.reading),
            "the compute settings": str(replace(self.compute, threads=0)),
            "the stall settings": f"{watching.stall_seconds:g} s, {watching.at_stall}",
            "the timeline": "written" if watching.timeline else "not written",  # which is collective
            "the numbers": f"{'measured' if watching.measures else 'not measured'}, every {watching.measure_every}",
        }

    def with_flags(self, given: Mapping[str, Any]) -> Settings:
        """Return the settings with the fields replaced for which a flag was given; see scaffe.setting.with_flags."""
        return replace(self, **{name: with_flags(record, given) for name, record in vars(self).items()})


def moved_keywords() -> dict[str, str]:
    """Return the names that are no keywords of Solver, but fields of its records, with how to write them."""
    names = {"keep_diffs": "solver.net.keep_diffs = True; for test nets keep_data", "asked": "solver.asked = ..."}
    for one in reversed(fields(Settings)):  # a name that two records have is the first one's
        kind = type(one.default)
        names |= {f.name: f"{one.name}={kind.__name__}({f.name}=...)" for f in fields(kind)}
    return names


def titles() -> dict[type, str]:
    """Return the records' classes, with the title of their flags."""
    return {type(one.default): one.metadata["title"] for one in fields(Settings)}


def read_settings(path: str | os.PathLike[str], defaults: Settings = Settings()) -> Settings:  # noqa: B008  frozen
    """Return the settings of a TOML file: a table for each record, whose keys are the fields' names.

    Keys above the first table are those of `run`. A field that the file leaves out is that of `defaults`. Raise
    ScaffeError, with the path, where the file is wrong.
    """
    given, records = _parsed(path), vars(defaults)
    try:
        tables = {name: list(_table(name, given.pop(name, {})).items()) for name in records}
        tables["run"] += given.items()
        return Settings(**{name: _filled(name, record, tables[name]) for name, record in records.items()})
    except (ScaffeError, ReaderError) as error:
        raise ScaffeError(f"{path}: {error}") from None


def _parsed(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        with open_input(path) as file:
            return tomllib.load(file)
    except OSError as error:
        raise ScaffeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise ScaffeError(f"{path}: {error}") from None


def _table(name: str, given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        keys = _right_keys(name)
        raise ScaffeError(f"{name} must be a table, [{name}], got {given!r}{'; ' if keys else ''}{keys}")
    return given


def _filled(name: str, record: Any, table: Iterable[tuple[str, Any]]) -> Any:
    """Return the record with the fields replaced that table `name` gives."""
    known = {one.key: one for one in settings_of(type(record))}
    values: dict[str, Any] = {}
    for key, value in table:
        one = known.get(key.replace("_", "-"))
        if one is None:
            raise ScaffeError(_refusal(name, key, value, known))
        if one.name in values:
            raise ScaffeError(f"key '{key}' is given twice")
        values[one.name] = one.from_file(value)
    return replace(record, **values)


def _refusal(name: str, key: str, value: object, known: Iterable[str]) -> str:
    """Return the error's text for a key that table `name` does not have, with what to write instead."""
    if isinstance(value, dict):
        return f"unknown table [{key}]{near(key, [f'[{one.name}]' for one in fields(Settings)], 'known')}"
    right = _right_keys(key)
    return f"unknown key '{key}' in [{name}]{f'; {right}' if right else near(key, known, 'known')}"


def _right_keys(given: str) -> str:
    """Return what to write for a word that is the key or the flag of a setting, "" for any other."""
    known = [(record.name, one) for record in fields(Settings) for one in settings_of(type(record.default))]
    right = [f"{one.key} in [{name}]" for name, one in known if given.replace("_", "-") in (one.key, one.flag_name)]
    return f"write {' or '.join(right)}" if right else ""


def table() -> str:
    """Return all settings as a Markdown table: flag, record and field, values, default, meaning."""
    lines = ["| flag | key | default | meaning |", "|---|---|---|---|"]
    for group in fields(Settings):
        for one in settings_of(type(group.default)):
            values = "NAME" if callable(one.choices) else "|".join(one.values) or one.metavar
            flag = f"`--{one.flag_name} {values}`" if values else f"`--{one.flag_name}`"
            cells = flag, f"`{group.name}.{one.key}`", f"`{one.shown}`" if one.shown else "", one.help
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
