"""Every public name is documented, typed and listed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import mapveil

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(mapveil.__path__, "mapveil.")
    if not found.name.endswith("__main__")
)


def own_members(module_name: str) -> list[tuple[str, object]]:
    module = importlib.import_module(module_name)
    return [
        (f"{module_name}.{name}", getattr(module, name))
        for name in getattr(module, "__all__", [])
        if getattr(getattr(module, name), "__module__", module_name) == module_name
    ]


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_docstring_and_lists_its_public_names(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip(), f"{name} has no docstring"
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }
    if defined:
        listed = set(getattr(module, "__all__", []))
        assert defined <= listed, f"{name}: not in __all__: {sorted(defined - listed)}"


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name: str) -> None:
    undocumented = []
    for full, value in own_members(name):
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
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


def test_every_name_of_the_top_package_loads() -> None:
    for name in mapveil.__all__:
        assert getattr(mapveil, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = mapveil.nothing
