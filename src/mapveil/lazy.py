"""Names of a package that load on first use, listed once: in the stub ``__init__.pyi`` beside it."""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def attach_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package whose stub is made of ``from module import Name as Name``.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    file : str
        ``__file__`` of the package.
    """

    def names() -> dict[str, str]:
        import ast

        with open(f"{file}i", encoding="utf-8") as stub:
            body = ast.parse(stub.read()).body
        return {
            alias.name: str(node.module)
            for node in body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def load(name: str) -> Any:
        module = None if name.startswith("__") else names().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module == package:
            value: Any = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(names())
