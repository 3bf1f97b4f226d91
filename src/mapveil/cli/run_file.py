"""Run files: the options of one release in YAML, read strictly and written from a command's own arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from mapveil.cli.arguments import did_you_mean
from mapveil.formats.atomic import atomic_path
from mapveil_client.errors import InputError, MapveilError

if TYPE_CHECKING:
    from mapveil.cli.options import Drawing
    from mapveil.maps.released import ReleasedMap

Released = TypeVar("Released", bound="ReleasedMap")

_GIVEN: Final = "mapveil.given"  # in a command's context: its arguments, as they were written
_RUN: Final = "mapveil.run"  # in a command's context: what the release's record states of its run file
_EACH_TIME: Final = ("dry_run", "help", "resume", "save")  # decided anew at each run
_COMMAND: Final = "command"


class Rerunnable(click.Command):
    """A command whose options can be written to a run file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them."""
        ctx.meta[_GIVEN] = list(args)
        return super().parse_args(ctx, args)


class RunFile(NamedTuple):
    """The content of a run file."""

    path: Path
    sha256: str
    command: str
    values: dict[str, tuple[int, list[str]]]  # of each key: its line, and its texts

    def arguments(self, command: click.Command, more: list[str]) -> list[str]:
        """The command's arguments, where an option in ``more`` replaces that of the file.

        Raises
        ------
        InputError
            A key is no option of the command, or its value is of the wrong kind; names the line.
        """
        known = {_key(each): each for each in command.params if each.name not in _EACH_TIME}
        for key, (line, texts) in self.values.items():
            if key not in known:
                near = did_you_mean(key, known)
                raise self.fault(
                    line, f"{self.command} has no option {key!r};{near} expected one of {', '.join(known)}"
                )
            _check_kind(self, known[key], key, line, texts)
        given = _parsed(click.Context(command, info_name=self.command), more)
        flags, inputs = list[str](), list[str]()
        for key, (_, texts) in self.values.items():
            parameter = known[key]
            if _is_given(given.get(str(parameter.name))):
                continue
            if isinstance(parameter, click.Argument):
                inputs = texts
            elif getattr(parameter, "is_flag", False):
                flags += [f"--{key}"] * (texts == ["true"])
            else:
                values = texts if parameter.multiple else [",".join(texts)]
                flags += [part for value in values for part in (max(parameter.opts, key=len), value)]
        return [*flags, *more, *(("--", *inputs) if inputs else ())]

    def replaced(self, command: click.Command, more: list[str]) -> list[str]:
        """Keys of the release's options in ``more``, which replace those of the file or its silence."""
        given = _parsed(click.Context(command, info_name=self.command), more)
        options = (each for each in command.params if each.name not in _EACH_TIME)
        return sorted(_key(each) for each in options if _is_given(given.get(str(each.name))))

    def blamed(self, command: click.Command, error: Exception) -> Exception:
        """The error with the line of the key whose value has it, or with the file's name."""
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if isinstance(error, MapveilError):
            said = error.in_flags()
        parameters = {_key(each): each for each in command.params}
        context = click.Context(command, info_name=self.command, resilient_parsing=False)
        for key, (line, texts) in self.values.items():
            parameter = parameters[key]
            value: Any = texts if parameter.multiple else ",".join(texts)
            try:
                if not getattr(parameter, "is_flag", False):
                    parameter.process_value(context, value)
            except (click.ClickException, MapveilError) as own:
                own_said = own.format_message() if isinstance(own, click.ClickException) else str(own)
                return self.fault(line, f"{key}: {own_said}")
        return InputError(f"{self.path}: {said}")

    def fault(self, line: int, text: str) -> InputError:
        """An error about a line."""
        return InputError(f"{self.path}, line {line}: {text}")


def read_run_file(path: Path, commands: tuple[str, ...]) -> RunFile:
    """Read a run file: a mapping of texts, lists of texts, and for ``option`` a mapping.

    Raises
    ------
    InputError
        No such file, no YAML, another shape, a key that comes twice, or a command that cannot be run from a file.
    """
    import yaml

    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from error
    try:
        root = yaml.compose(data, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise InputError(f"{path}{line}: no YAML ({error.problem})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no YAML ({str(error).splitlines()[0]})") from error
    found = RunFile(path, hashlib.sha256(data).hexdigest(), commands[0], {})
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{path}: expected lines such as 'epsilon: 1', one option of {commands[0]} each")
    for number, key, node in _entries(found, root):
        if key in found.values:
            raise found.fault(number, f"{key!r} is given twice, first in line {found.values[key][0]}")
        if key == "option" and isinstance(node, yaml.MappingNode):
            texts = [f"{name}={_text(found, each)}" for _, name, each in _entries(found, node)]
        else:
            parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
            texts = [_text(found, each) for each in parts]
        found.values[key] = number, texts
    number, (command, *_) = found.values.pop(_COMMAND, (1, [commands[0]]))
    if command not in commands:
        raise found.fault(number, f"command must be one of {', '.join(commands)}, got {command!r}")
    return found._replace(command=command)


def save_run_file(path: Path) -> None:
    """Write the options of the command that runs, as they were given, but for those of this run alone."""
    import yaml

    context = click.get_current_context()
    command = context.command
    given = _parsed(context, context.meta[_GIVEN])
    record: dict[str, Any] = {_COMMAND: context.info_name}
    for parameter in command.params:
        value = given.get(str(parameter.name))
        if parameter.name in _EACH_TIME or not _is_given(value):
            continue
        record[_key(parameter)] = list(value) if isinstance(value, tuple | list) else value
    with atomic_path(path) as place:
        text = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=1 << 16)
        place.write_text(f"# mapveil run {path.name}\n{text}", encoding="utf-8")


def note_run(context: click.Context, sha256: str, replaced: list[str]) -> None:
    """Note the hash of the run file and the options that replaced its own, which the release's record states."""
    context.meta[_RUN] = {"run_file_sha256": sha256} | ({"run_file_replaced": replaced} if replaced else {})


def titled(released: Released, drawing: Drawing) -> Released:
    """The map with the user's title and layers, and with the run file's hash and the options replaced in its record.

    A filter that reads users' ids has a text that nobody may confirm by guessing, so its file's hash is not told.
    """
    running = click.get_current_context()
    of_file, made = running.meta.get(_RUN), released.provenance
    if of_file is not None and made.where == running.params.get("where"):
        made = replace(made, options={**made.options, **of_file})
    changed: Released = replace(cast("Any", released), **drawing.of(released), provenance=made)
    return changed


def _key(parameter: click.Parameter) -> str:
    """The key of an option, its longest flag, or of the argument."""
    if isinstance(parameter, click.Argument):
        return "input"
    return max(parameter.opts, key=len).lstrip("-")


def _parsed(context: click.Context, arguments: list[str]) -> dict[str, Any]:
    """The values that a command's parser finds in its arguments, by the names of its parameters."""
    given, _, _ = context.command.make_parser(context).parse_args(list(arguments))
    return dict(given)


def _is_given(value: object) -> bool:
    """Whether a parser found a value, and not None or a mark of its own."""
    return isinstance(value, str | bool | int | list | tuple) and value not in ([], ())


def _check_kind(file: RunFile, parameter: click.Parameter, key: str, line: int, texts: list[str]) -> None:
    if getattr(parameter, "is_flag", False):
        if texts not in (["true"], ["false"]):
            raise file.fault(line, f"{key} must be true or false, got {', '.join(texts) or 'nothing'}")
    elif not texts or not all(texts):
        raise file.fault(line, f"{key} has no value; leave the line out for its default")


def _entries(file: RunFile, node: Any) -> Iterator[tuple[int, str, Any]]:
    """Line, key and value of a mapping."""
    for key, value in node.value:
        yield key.start_mark.line + 1, _text(file, key), value


def _text(file: RunFile, node: Any) -> str:
    """A scalar as it is written."""
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        raise file.fault(node.start_mark.line + 1, "expected a text, a number or a list of them")
    return str(node.value)
