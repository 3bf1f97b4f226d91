"""Every public name is documented and typed."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import mapveil
import mapveil_client

MODULES = sorted(
    found.name
    for package in (mapveil, mapveil_client)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not found.name.endswith("__main__")
)


def own_members(module_name: str) -> list[tuple[str, object]]:
    """The public classes and functions that a module defines."""
    return [
        (f"{module_name}.{name}", value)
        for name, value in vars(importlib.import_module(module_name)).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module_name
    ]


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_docstring(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name: str) -> None:
    undocumented = []
    for full, value in own_members(name):
        if not (value.__doc__ or "").strip():
            undocumented.append(full)
        if inspect.isclass(value):
            undocumented += [
                f"{full}.{key}"
                for key, member in vars(value).items()
                if not key.startswith("_")
                and (inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod))
                and not inspect.getdoc(getattr(value, key))
            ]
    assert not undocumented


def test_no_docstring_begins_with_a_question_word() -> None:
    found = []
    for package in (mapveil, mapveil_client):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = node.value if isinstance(node, ast.Expr) else None
                if isinstance(text, ast.Constant) and re.match(
                    r"(What|Who|Whose|How)\b", str(text.value).lstrip()
                ):
                    found.append(f"{path.name}:{node.lineno}: {str(text.value)[:60]}")
    assert not found


def test_every_reference_of_a_docstring_leads_somewhere() -> None:
    lost = []
    for package in (mapveil, mapveil_client):
        for path in Path(package.__path__[0]).rglob("*.py"):
            names = re.findall(r":[a-z]+:`~?(mapveil(?:_client)?\.[\w.]+)`", path.read_text(encoding="utf-8"))
            lost += [f"{path.name}: {name}" for name in names if not _leads_somewhere(name)]
    assert not lost


def _leads_somewhere(name: str) -> bool:
    if name in MODULES:
        return True
    owner, _, last = name.rpartition(".")
    module = next((known for known in reversed(MODULES) if f"{owner}.".startswith(f"{known}.")), "mapveil")
    value: object = importlib.import_module(module)
    for part in owner.removeprefix(module).split(".")[1:]:
        value = getattr(value, part, None)
    return hasattr(value, last) or last in getattr(value, "__dataclass_fields__", {})


def test_every_name_of_the_top_package_loads() -> None:
    for package in (mapveil, mapveil.mechanisms):
        for name in dir(package):
            assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = mapveil.nothing
