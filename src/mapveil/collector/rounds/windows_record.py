"""The windows of a series in an operator's specification."""

import time
from typing import Annotated, Final

from pydantic import Field

from mapveil.collector.rounds.validation import ONE_LINE, StrictModel, worded
from mapveil.geo.windows import Windows
from mapveil.mechanisms.methods import Method
from mapveil_client.errors import InputError

_MOST_WINDOWS: Final = 1024
"""Maximum number of windows of a series: each has a part of the devices, and a map in the result."""

_MOST_SITES: Final = 1 << 25
"""Sites of all windows together: an estimate takes several arrays of so many numbers, of 0.27 GB each."""

_METHODS: Final = {"local": "olh-h", "distributed": "multiscale", "operators": "multiscale"}
"""The method of a series by trust model."""

_LENGTH: Final = worded(r"^[1-9][0-9]{0,3}(h|d|w|mo)$", "a length such as 6h, 1d, 1w or 1mo")


class WindowsRecord(StrictModel):
    """The public windows of a series: periods of a calendar, recurring times or categories, or every pair of both."""

    every: Annotated[str, Field(pattern=_LENGTH)] | None = Field(
        default=None, description="Length of a period, such as 1d, 1w or 1mo"
    )
    start: Annotated[str, Field(max_length=20)] | None = Field(
        default=None, description="First day, or hour, of the first period"
    )
    until: Annotated[str, Field(max_length=20)] | None = Field(
        default=None, description="The day, or hour, after the last period"
    )
    zone: Annotated[str, Field(max_length=60)] | None = Field(
        default=None, description="Time zone of the windows, UTC by default"
    )
    by: Annotated[str, Field(min_length=1, max_length=60, pattern=ONE_LINE)] | None = Field(
        default=None, description="hour, weekday, weekend or hour-of-week, or the name of a category"
    )
    values: Annotated[
        list[Annotated[str, Field(max_length=200, pattern=ONE_LINE)]],
        Field(max_length=_MOST_WINDOWS),
    ] = Field(default=[], description="The categories, which are public")

    def for_method(self, method: Method) -> Windows:
        """The windows, for one of the methods that make a series.

        Raises
        ------
        InputError
            They are no windows, too few, too many or not over, or the method is another.
        """
        if _METHODS.get(method.trust) != method.name:
            raise InputError(
                "windows: a series is made of local reports by olh-h, or of sums (distributed, operators) by "
                f"multiscale, got {method.trust} and {method.name}; leave windows out"
            )
        found = Windows.from_dict(self.model_dump())
        if not 2 <= found.count <= _MOST_WINDOWS:
            raise InputError(f"windows must be 2 to {_MOST_WINDOWS}, got {found.count}")
        ends = found.ends(found.count - 1)
        if method.trust != "local" and ends is not None and ends > time.time():
            raise InputError(
                f"windows must be over before a collection of sums, whose devices answer about all of them at once; "
                f"{found.names[-1]} is not: create it then, or take trust local"
            )
        return found


def check_sites(windows: int, depth: int) -> None:
    """Refuse a series whose map would take too much memory, after every device had paid for it.

    Raises
    ------
    InputError
        There are more than 2^25 sites in all ``windows`` of a raster of ``depth`` levels.
    """
    sites = 1 << (2 * depth)
    if windows * sites > _MOST_SITES:
        raise InputError(
            f"windows must be at most {_MOST_SITES // sites:,} on this tiling's raster of {sites:,} sites, got "
            f"{windows:,}: the map would take too much memory; a coarser tiling takes more (a long grid has the raster "
            "of a square)"
        )
