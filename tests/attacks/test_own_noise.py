"""A server whose accomplices are everybody else: the noise of one device alone, whatever epsilon is claimed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil_client.randomness.noise_shares import noise_shares, own_epsilon, share_shape
from mapveil_client.randomness.random import Randomness

REPORTS = 400_000


@pytest.mark.parametrize(("devices", "least"), [(24, 3.8), (100, 5.2), (1_000, 7.4)])
def test_a_claimed_epsilon_of_1_is_that_of_the_others_noise(devices: int, least: float) -> None:
    # The accomplices' vectors and masks are subtracted: each report below is a unit and the victim's own share.
    share = share_shape(devices, "0.1", "0.05")
    noise = noise_shares(REPORTS, 1, share, Fraction(1), 1, Randomness(seed=devices))
    drawn = np.bincount(noise.client, weights=noise.value, minlength=REPORTS)
    there, elsewhere = np.mean(drawn + 1 == 1), np.mean(drawn == 1)
    seen = float(np.log(there / elsewhere))
    own = own_epsilon(share, Fraction(1), 1)
    assert least < seen
    # Five standard deviations of the rarer count.
    assert abs(seen - own) < 5 / np.sqrt(REPORTS * elsewhere)
