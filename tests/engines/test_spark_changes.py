"""Tables on a cluster that change between the two passes of a release."""

from __future__ import annotations

import uuid

import pytest

import mapveil as mv
from mapveil.engines import user_sums
from mapveil.engines.spark_connect import SparkEngine
from mapveil.privacy.population import see
from mapveil_client.errors import InputError

from .test_spark_connect import QUADTREE, pytestmark, random_frame

__all__ = ["pytestmark"]  # of this module too


def test_rows_added_after_the_ledger_read_the_ids_are_refused(engine: SparkEngine) -> None:
    """Else people would be in the sums whom later accounts could not recognise."""
    name, frame = f"t{uuid.uuid4().hex}", random_frame(50)
    engine.session.createDataFrame(frame.slice(0, 49)).createTempView(name)
    points = mv.read_points(engine.table(name))
    with see(points, b"k" * 32):
        engine.session.createDataFrame(frame).createOrReplaceTempView(name)
        with pytest.raises(
            InputError, match=r"rows were added or removed.*VERSION AS OF.*nothing was charged"
        ):
            user_sums(points, QUADTREE)
    with see(points, b"k" * 32):
        assert user_sums(points, QUADTREE).sums.any()
    engine.session.createDataFrame(frame.slice(0, 49)).createOrReplaceTempView(name)
    assert user_sums(points, QUADTREE).sums.any(), "without the ledger there is one pass"
