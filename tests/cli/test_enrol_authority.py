"""``mapveil enrol-authority``: its key is drawn once, shown by its public half, and certifies devices."""

from __future__ import annotations

import json
import time
from pathlib import Path

from mapveil_client.secure_sum.certificate import Authority, Certificate
from mapveil_client.secure_sum.keys import Identity


def test_an_authority_is_made_shown_and_certifies(mapveil, tmp_path: Path) -> None:
    key, requests = tmp_path / "authority.key", tmp_path / "keys.txt"
    assert "--create makes one" in mapveil("enrol-authority", key).err
    done = mapveil("enrol-authority", key, "--population", "bikes.example", "--create")
    assert done.code == 0, done.err
    named = Authority.parse(done.out.strip())
    assert named.population == "bikes.example"
    assert named.fingerprint in done.err
    again = mapveil("enrol-authority", key, "--population", "bikes.example", "--json")
    assert json.loads(again.out) == {"authority": str(named), "fingerprint": named.fingerprint}
    assert key.read_text().strip() not in done.out + done.err + again.out
    devices = [Identity(bytes([number] * 32)).public for number in range(3)]
    requests.write_text("\n".join(each.hex() for each in devices))
    asked = ("--population", "bikes.example", "--certify", requests, "--days", "7")
    done = mapveil("enrol-authority", key, *asked)
    assert done.code == 0, done.err
    made = [Certificate.decode(bytes.fromhex(line)) for line in done.out.split()]
    assert [each.fault(named, public, time.time()) for each, public in zip(made, devices, strict=True)] == [
        None
    ] * 3
    assert len({each.serial for each in made}) == 3
    for text, says in (
        (f"{'z' * 64}", "64 hexadecimal"),
        ("ab", "32 bytes"),
        (f"{devices[0].hex()}\n" * 2, "once"),
    ):
        requests.write_text(text)
        done = mapveil("enrol-authority", key, *asked)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
