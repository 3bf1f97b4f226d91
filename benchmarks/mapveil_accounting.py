"""Cost of an account to a release, in a process of its own: seconds to recognise the people of a table."""

import json
import sys
import time
from pathlib import Path

import duckdb  # noqa: F401  the libraries that it loads when it needs them: imports are not timed
import pyarrow  # noqa: F401

import mapveil as mv

path, file = sys.argv[1], Path(sys.argv[2])
file.unlink(missing_ok=True)
points = mv.read_points(path)
start = time.perf_counter()
mv.Ledger(file).recognise(points)
print(json.dumps({"seconds": time.perf_counter() - start}))
