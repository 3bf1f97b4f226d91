"""Addresses of Spark Connect servers: what is refused, and what is never quoted."""

from __future__ import annotations

import pytest

from mapveil.engines.spark_address import checked_address, shown_address
from mapveil.engines.spark_errors import ClusterError


@pytest.mark.parametrize(
    ("url", "address", "shown"),
    [
        ("sc://spark.example", ("spark.example", 15002), "spark.example:15002"),
        ("sc://me@spark.example:/;token=secret", ("spark.example", 15002), "spark.example:15002"),
        ("sc://10.0.0.1:443/;use_ssl=TRUE;token=secret", ("10.0.0.1", 443), "10.0.0.1:443"),
        ("sc://[::1]:5/;use_ssl=false", ("::1", 5), "[::1]:5"),
    ],
)
def test_host_and_port_are_named_and_nothing_else(url: str, address: tuple[str, int], shown: str) -> None:
    assert checked_address(url) == address
    assert shown_address(url) == shown


@pytest.mark.parametrize(
    "parameters",
    [
        *("use_ssl=yes", "token=t;use_ssl=1", "use_ssl=", "use_ssl=True%20", "use_ssl", "ssl=true"),
        *("USE_SSL=true", "use_ssl=true;use_ssl=false", "secure=true", "Encrypt=true", "https=true"),
        *("u\u017fe_\u017f\u017fl=true", "use_\u0455\u0455l=true", "use_ssl=true;grpc_encryption=true"),
    ],
)
def test_a_word_that_would_turn_encryption_off_silently_is_refused(parameters: str) -> None:
    expected = r"host:1: expected use_ssl once, true or false, and no other .* of encryption; nothing was"
    with pytest.raises(ClusterError, match=expected):
        checked_address(f"sc://host:1/;{parameters}")


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://SECRET",
            "sc://",
            "sc://host;token=SECRET",
            "sc://host:1;token=SECRET",
            "sc://host/token=SECRET",
        ),
        *("sc://host/?use_ssl=true;token=SECRET", "sc://host/#;token=SECRET", "sc://host:SECRET"),
        *(
            "sc://[::1;token=SECRET]",
            "sc://[1:2]/;token=SECRET",
            "sc://host:99999/;token=SECRET",
            "sc://host:0",
        ),
    ],
)
def test_a_url_of_another_form_is_refused_and_never_quoted(url: str) -> None:
    with pytest.raises(ClusterError, match=r"with any parameters after '/;'; nothing was charged") as raised:
        checked_address(url)
    assert "SECRET" not in str(raised.value)


def test_an_error_says_that_nothing_was_charged_unless_it_says_what_was() -> None:
    error = ClusterError("the server stopped answering")
    assert str(error) == error.in_flags() == "the server stopped answering; nothing was charged"
    error.add_note("epsilon 1 is charged")
    assert str(error) == error.in_flags() == "the server stopped answering"
