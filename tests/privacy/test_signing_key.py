"""The file of a signing key: drawn once, and for its owner only."""

from __future__ import annotations

import pytest

from mapveil.privacy.signing_key import signing_key
from mapveil_client.errors import InputError


def test_a_key_is_drawn_once_and_kept_for_its_owner(tmp_path):
    path = tmp_path / "ledger.sqlite.key"
    assert signing_key(path) is None
    assert not path.exists()
    made = signing_key(path, make=True)
    assert made.public == signing_key(path, make=True).public == signing_key(path).public
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    signing_key(path, make=True)
    path.chmod(mode)
    with pytest.raises(InputError, match="chmod 600"):
        signing_key(path, make=True)


def test_a_key_that_is_none_is_refused(tmp_path):
    path = tmp_path / "key"
    path.touch(0o600)
    with pytest.raises(InputError, match="is no key"):
        signing_key(path, make=True)
    with pytest.raises(InputError, match="no signing key can be kept"):
        signing_key(tmp_path / "none" / "key", make=True)
