"""The tree of exceptions: closed, with one exit code each, and standard where Python has a name for it."""

from __future__ import annotations

import inspect

import pytest

from mapveil_client import errors


def classes():
    kinds = (kind for _, kind in inspect.getmembers(errors, inspect.isclass))
    return [kind for kind in kinds if issubclass(kind, Exception) and not issubclass(kind, Warning)]


def test_the_tree_is_closed():
    assert {kind.__name__ for kind in classes()} == {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and not issubclass(value, Warning)
    }
    assert all(issubclass(kind, errors.MapveilError) for kind in classes())


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.MapveilError, 1),
        (errors.InputError, 2),
        (errors.ParameterError, 2),
        (errors.MissingExtra, 2),
        (errors.PromiseError, 1),
        (errors.BudgetExceeded, 1),
    ],
)
def test_exit_codes(kind, code):
    assert kind("says why").exit_code == code


def test_callers_who_know_only_python_catch_them():
    assert issubclass(errors.ParameterError, ValueError)
    assert issubclass(errors.MissingExtra, ImportError)
    assert not issubclass(errors.PromiseError, errors.InputError)


def test_require_imports_what_is_there():
    assert errors.require("json.decoder", "viz").JSONDecoder


def test_require_names_the_extra_that_is_missing():
    with pytest.raises(errors.MissingExtra) as caught:
        errors.require("no_such_package.part", "viz")
    assert str(caught.value) == (
        "no_such_package is not installed; it comes with the extra viz, as by pip install '.[viz]' in the checkout"
    )
    assert isinstance(caught.value.__cause__, ImportError)
