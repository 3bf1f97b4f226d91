"""Columns of a table that are features of measurements: numbers by default, categories, and no identifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mapveil.geo.feature_kinds import FeatureKind, kind_of
from mapveil.geo.find_columns import NUMBER, listed
from mapveil.geo.text_categories import TextNumbers
from mapveil_client.errors import InputError, check


def may_be_number(name: str, types: Mapping[str, str]) -> bool:
    """Whether a column may hold numbers; text may spell them."""
    return types[name] in ("VARCHAR", "BOOLEAN") or bool(NUMBER.match(types[name]))


def is_text(held: str) -> bool:
    """Whether a type is one of text."""
    return held == "VARCHAR" or held.startswith("ENUM")


def feature_columns(
    source: str,
    types: Mapping[str, str],
    features: Sequence[str] | None,
    categories: Sequence[str] | None,
    texts: TextNumbers,
    taken: set[str | None],
    identifiers: bool,
    notes: list[str],
) -> list[str]:
    """The features beside place and signal strength, in order; appends to ``notes`` what is left out.

    Raises
    ------
    InputError
        A named column is missing, taken, named twice, or of another type.
    """
    for given in (features, categories):
        check(not isinstance(given, str), "features", "a sequence of column names", given)
    asked = [name for name in categories or () if features is None or name not in features]
    if features is None:
        # Where some columns have types, a column of text was never meant as a number, but may be a category.
        untyped = set(types.values()) == {"VARCHAR"}
        found = [
            name
            for name in types
            if name not in taken
            and (
                untyped or NUMBER.match(types[name]) or (categories is None and _named_category(name, types))
            )
        ]
        gone = (
            []
            if identifiers
            else [each for each in found if each not in asked and kind_of(each) is FeatureKind.IDENTIFIER]
        )
        if gone:
            notes.append(f"left out, identifiers: {listed(gone, str)}")
        found = [name for name in found if name not in gone]
        asked = _named(source, types, asked, {*asked, *texts}, taken)
        return found + [name for name in asked if name not in found]
    return _named(source, types, [*features, *asked], {*(categories or ()), *texts}, taken)


def _named(
    source: str,
    types: Mapping[str, str],
    features: Sequence[str],
    categories: set[str],
    taken: set[str | None],
) -> list[str]:
    for name in features:
        if name not in types:
            raise InputError(f"{source}: no column {name!r}; its columns are {listed(types)}")
        if not may_be_number(name, types) and not (name in categories and is_text(types[name])):
            raise InputError(
                f"{source}: column {name!r} is of type {types[name].lower()}; expected numbers as features, or text as "
                "categories"
            )
        if name in taken or list(features).count(name) > 1:
            raise InputError(f"{source}: column {name!r} is named twice; expected each column once")
    return list(features)


def category_columns(
    further: Sequence[str], types: Mapping[str, str], given: Sequence[str] | None, inferred: bool
) -> set[str]:
    """The features that are categories: those given, else by their names where that is asked."""
    if given is not None or not inferred:
        return set(given or ())
    return {name for name in further if kind_of(name, types[name] == "BOOLEAN") is FeatureKind.CATEGORY}


def _named_category(name: str, types: Mapping[str, str]) -> bool:
    return is_text(types[name]) and kind_of(name) is FeatureKind.CATEGORY


def refuse_identifiers(source: str, further: Sequence[str], types: Mapping[str, str]) -> None:
    """Raise for a feature that is an identifier.

    Raises
    ------
    InputError
        Of the first.
    """
    for name in further:
        if kind_of(name) is FeatureKind.IDENTIFIER:
            raise InputError(
                f"{source}: column {name!r} is an identifier, which no average means anything of; leave it out, or "
                f"privatize it as a category, by categories={name!r} (--category {name})"
            )
