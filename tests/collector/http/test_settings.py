from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.collector.http.settings import SETTINGS, Settings
from mapveil_client.errors import ParameterError

NUMBERS = [row for row in SETTINGS if row.number]


def test_every_row_is_told_and_within_its_own_range() -> None:
    for row in SETTINGS:
        assert row.help
        assert row.option == "--" + row.name.replace("_", "-")
        assert row.variable == "MAPVEIL_" + row.name.upper()
        row.check(row.default)
    assert len({row.name for row in SETTINGS}) == len(SETTINGS)


@given(st.data())
def test_the_environment_says_the_same_as_values(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from([row for row in NUMBERS if row.name != "workers"]))
    value = data.draw(st.integers(row.low, row.high))
    read = Settings.read({row.variable: str(value)})
    assert read == Settings(**{row.name: value})
    assert Settings.read(read.environment()) == read


@given(st.data())
def test_what_is_out_of_range_is_refused_by_name(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(NUMBERS))
    value = data.draw(st.integers().filter(lambda value: not row.low <= value <= row.high))
    with pytest.raises(ParameterError, match=row.name):
        Settings(**{row.name: value})
    with pytest.raises(ParameterError, match=row.variable):
        Settings.read({row.variable: str(value)})


@pytest.mark.parametrize("text", ["ten", "1.5", "", "٣", "1e3", "0x10", "9" * 40])
def test_what_is_no_number_is_refused(text: str) -> None:
    if text == "":
        assert Settings.read({"MAPVEIL_PORT": text}) == Settings()
        return
    with pytest.raises(ParameterError, match="MAPVEIL_PORT"):
        Settings.read({"MAPVEIL_PORT": text})


def test_an_option_wins_over_the_environment() -> None:
    environment = {"MAPVEIL_PORT": "1", "MAPVEIL_HOST": "::1"}
    read = Settings.read(environment, {"port": 2, "host": None})
    assert (read.port, read.host) == (2, "::1")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"tls_cert": "a.pem"}, "TLS"),
        ({"tls_key": "a.pem"}, "TLS"),
        ({"workers": 2}, "PostgreSQL"),
        ({"role": "worker", "exports": "folder"}, "must be all on SQLite"),
        ({"role": "worker", "store": "postgresql://db/mapveil"}, "exports"),
        ({"role": "cook"}, "role"),
        ({"log_format": "xml"}, "log_format"),
        ({"host": ""}, "host"),
        ({"port": True}, "port"),
        ({"trusted_proxies": "localhost"}, r"addresses or networks.*'localhost'"),
        ({"trusted_proxies": "10.0.0.1, 10.0.0.0/33"}, "10.0.0.0/33"),
        ({"trusted_proxies": ""}, "trusted_proxies"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        Settings(**values)


def test_a_password_is_in_no_repr() -> None:
    settings = Settings(store="postgresql://me:hunter2@db/mapveil", workers=2)
    assert "hunter2" not in repr(settings)
    assert settings.workers == 2
