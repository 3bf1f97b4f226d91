"""A device for collections of two operators, written from docs/reference/device-specification.md alone.

It imports nothing of Mapveil. Run as ``python operators_device.py COLLECTOR TOKEN FOLDER HELPER SITE``: it answers
collections of one unit a device (Poplar1), as a device at the site (-1: at none). Randomness that holds a number of the
modulus or above, once in 2^24 reports, is not used. The hash in turbo_shake_128.py stands in for a library's.
"""

import hashlib
import hmac
import json
import re
import secrets
import sqlite3
import sys
import time
from fractions import Fraction

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from turbo_shake_128 import turbo_shake

P64, P255 = 2**64 - 2**32 + 1, 2**255 - 19
BYTES = {P64: 8, P255: 32}
KEYS = "active authority authority_apart devices epsilon identifier method minimum operators options own_epsilon query"
CONFIG = re.compile("[0-9a-f]{2}00200001000[13]0020([0-9a-f]{64})")


def tag(kind: int, algorithm: int, usage: int, context: bytes) -> bytes:
    made = bytes([18, kind]) + algorithm.to_bytes(4, "big") + usage.to_bytes(2, "big") + context
    return len(made).to_bytes(2, "little") + made


def xof(seed: bytes, dst: bytes, binder: bytes, size: int) -> bytes:
    return turbo_shake(dst + bytes([len(seed)]) + seed + binder, 1, size)


def elements(modulus: int, data: bytes) -> list[int]:
    mask, size = 2 ** modulus.bit_length() - 1, BYTES[modulus]
    made = [int.from_bytes(data[i : i + size], "little") & mask for i in range(0, len(data), size)]
    assert all(each < modulus for each in made), "draw other randomness"
    return made


def encoded(modulus: int, numbers: list[int]) -> bytes:
    return b"".join((each % modulus).to_bytes(BYTES[modulus], "little") for each in numbers)


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def node_stream(dst: bytes, nonce: bytes, seed: bytes, size: int, last: bool) -> bytes:
    if last:
        return xof(seed, dst, nonce, size)
    aes = Cipher(algorithms.AES(turbo_shake(dst + nonce, 2, 16)), modes.ECB()).encryptor()
    mixed = [xor(seed, number.to_bytes(16, "little")) for number in range(-(-size // 16))]
    blocks = [each[8:] + xor(each[8:], each[:8]) for each in mixed]
    return b"".join(xor(aes.update(block), block) for block in blocks)


def words_of(bits: list[int], values: list[list[int]], keys: list[bytes], ctx: bytes, nonce: bytes) -> bytes:
    extend, convert = (tag(1, 0, usage, ctx) for usage in (0, 1))
    seeds, control, packed, words, corrections = keys, [0, 1], 0, b"", b""
    for level, keep in enumerate(bits):
        modulus, last = (P255, True) if level == len(bits) - 1 else (P64, False)
        wide = [node_stream(extend, nonce, seed, 32, last) for seed in seeds]
        child = [[bytes([w[i] & 0xFE]) + w[i + 1 : i + 16] for i in (0, 16)] for w in wide]
        bit = [[w[0] & 1, w[16] & 1] for w in wide]
        word = xor(child[0][1 - keep], child[1][1 - keep])
        fix = [bit[0][side] ^ bit[1][side] ^ (side == keep) for side in (0, 1)]
        kept = [xor(child[j][keep], word) if control[j] else child[j][keep] for j in (0, 1)]
        control = [bit[j][keep] ^ (control[j] & fix[keep]) for j in (0, 1)]
        wide = [node_stream(convert, nonce, each, 16 + 2 * BYTES[modulus], last) for each in kept]
        seeds, own = [w[:16] for w in wide], [elements(modulus, w[16:]) for w in wide]
        found = [(1 - 2 * control[1]) * (v - a + b) for v, a, b in zip(values[level], *own, strict=True)]
        corrections += encoded(modulus, found)
        words, packed = words + word, packed | (fix[0] | fix[1] << 1) << 2 * level
    return packed.to_bytes(-(-2 * len(bits) // 8), "little") + words + corrections


def shares_of(bits: list[int], context: bytes, nonce: bytes, random: bytes) -> tuple[bytes, list[bytes]]:
    keys, seeds, inner = [random[:16], random[16:32]], [random[32:64], random[64:96]], len(bits) - 1
    dst = [tag(0, 6, usage, context) for usage in range(4)]
    drawn, at = xof(random[96:], dst[1], nonce, 24 * inner + 96), 8 * inner
    secret = [elements(P64, drawn[:at]), elements(P255, drawn[at : at + 32])]
    others = [elements(P64, drawn[at + 32 : 3 * at + 32]), elements(P255, drawn[-64:])]
    inputs = [keys[0] + seeds[0], keys[1] + seeds[1]]
    for part, modulus in enumerate((P64, P255)):
        size, pairs = 3 * BYTES[modulus] * len(secret[part]), []
        one, two = (elements(modulus, xof(seeds[j], dst[2 + part], bytes([j]) + nonce, size)) for j in (0, 1))
        for level, key in enumerate(secret[part]):
            a, b, c = (one[3 * level + k] + two[3 * level + k] for k in range(3))
            pairs += [key - 2 * a, a * a + b - key * a + c]
        inputs[0] += encoded(modulus, [p - o for p, o in zip(pairs, others[part], strict=True)])
        inputs[1] += encoded(modulus, others[part])
    return words_of(bits, [[1, key] for key in secret[0] + secret[1]], keys, context, nonce), inputs


def extract(suite: bytes, salt: bytes, label: bytes, key: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + key, "sha256")


def expand(suite: bytes, key: bytes, label: bytes, context: bytes, size: int) -> bytes:
    labelled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context
    return hmac.digest(key, labelled + b"\1", "sha256")[:size]


def sealed(config: bytes, info: bytes, aad: bytes, message: bytes, ephemeral: bytes) -> bytes:
    private, kem, suite = X25519PrivateKey.from_private_bytes(ephemeral), b"KEM\0\x20", b"HPKE" + config[1:7]
    enc, public, chacha = private.public_key().public_bytes_raw(), config[9:], config[6] == 3
    agreed = extract(kem, b"", b"eae_prk", private.exchange(X25519PublicKey.from_public_bytes(public)))
    shared = expand(kem, agreed, b"shared_secret", enc + public, 32)
    context = b"\0" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    secret = extract(suite, shared, b"secret", b"")
    sizes = (b"key", 32 if chacha else 16), (b"base_nonce", 12)
    key, nonce = (expand(suite, secret, label, context, size) for label, size in sizes)
    payload = (ChaCha20Poly1305 if chacha else AESGCM)(key).encrypt(nonce, message, aad)
    return config[:1] + len(enc).to_bytes(2, "big") + enc + len(payload).to_bytes(4, "big") + payload


def report_of(site: int, depth: int, task: bytes, keys: list[bytes], hour: int, random: bytes) -> bytes:
    bits = [int(site >= 0), *(max(site, 0) >> shift & 1 for shift in reversed(range(2 * depth))), 0]
    public, inputs = shares_of(bits, b"dap-16" + task, random[:16], random[16:144])
    made = head = random[:16] + hour.to_bytes(8, "big") + b"\0\0" + len(public).to_bytes(4, "big") + public
    for j, (config, share) in enumerate(zip(keys, inputs, strict=True)):
        info = b"dap-16 input share\1" + bytes([2 + j])
        message = b"\0\0" + len(share).to_bytes(4, "big") + share
        made += sealed(config, info, task + head, message, random[144 + 32 * j : 176 + 32 * j])
    return made


def refused(text: bytes, listed: dict[str, str], helper: str) -> bool:
    try:
        terms = json.loads(text)
        again = json.dumps(terms, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        named = (hashlib.sha256(text).hexdigest(), terms["identifier"]) == (listed["terms"], listed["id"])
        form = {*terms} == {*KEYS.split(), "tiling", "title", "trust", "version"} and again == text
        leader, other = (CONFIG.fullmatch(each)[1] for each in terms["operators"])
        good = (terms["trust"], terms["active"], terms["authority"]) == ("operators", False, None)
        batch, size = terms["options"].get("minimum_batch") or 1, terms["devices"]
        numbers = [terms["tiling"]["depth"], batch, size, terms["version"], terms["minimum"]]
        whole = all(type(each) is int for each in numbers) and terms["version"] == 1 and 0 <= numbers[0] <= 10
        mine = terms["options"].get("scale") in (1, None) and terms["method"] != "proportions"
        few = not (20 <= terms["minimum"] <= size >= batch and 0 < Fraction(terms["epsilon"]) <= 2)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError):
        return True
    return few or other != helper or leader == other or not (named and form and good and whole and mine)


def main(collector: str, token: str, folder: str, helper: str, site: str) -> None:
    kept = sqlite3.connect(f"{folder}/account.sqlite", isolation_level=None)  # on the disk at once
    kept.execute("CREATE TABLE IF NOT EXISTS kept (name PRIMARY KEY, value, epsilon)")
    kept.execute("INSERT OR IGNORE INTO kept VALUES ('key', ?, NULL)", (secrets.token_bytes(32),))
    value = "SELECT value FROM kept WHERE name = ?"
    key = Ed25519PrivateKey.from_private_bytes(kept.execute(value, ("key",)).fetchone()[0])
    if kept.execute(value, ("device",)).fetchone() is None:
        public = key.public_key().public_bytes_raw()
        statement = b"mapveil enrolment 1\0" + hashlib.sha256(token.encode()).digest() + public
        record = {"token": token, "public_key": public.hex(), "signature": key.sign(statement).hex()}
        number = httpx.post(f"{collector}/v1/devices", json=record).json()["device"]
        kept.execute("INSERT INTO kept VALUES ('device', ?, NULL)", (number,))
    for listed in httpx.get(f"{collector}/v1/open").json():
        path = f"/v1/collections/{listed['id']}"
        text = httpx.get(f"{collector}{path}/terms").content
        if refused(text, listed, helper):
            continue
        terms, task = json.loads(text), hashlib.sha256(text).digest()
        operators, depth = [bytes.fromhex(each) for each in terms["operators"]], terms["tiling"]["depth"]
        if kept.execute(value, (path,)).fetchone() is None:
            costs = kept.execute("SELECT epsilon FROM kept WHERE epsilon NOT NULL").fetchall()
            if sum((Fraction(each) for (each,) in costs), Fraction(terms["epsilon"])) > 4:
                continue
            random, hour = secrets.token_bytes(208), int(time.time()) // 3600
            body = report_of(int(site), depth, task, operators, hour, random)
            kept.execute("INSERT INTO kept VALUES (?, ?, ?)", (path, body, terms["epsilon"]))
        (body,), (number,) = (kept.execute(value, (name,)).fetchone() for name in (path, "device"))
        purpose = f"mapveil request 1\0PUT\0{path}/report\0".encode() + hashlib.sha256(body).digest()
        signed = f"Mapveil-Device {number} {key.sign(purpose).hex()}"
        headers = {"Content-Type": "application/dap-upload-req", "Authorization": signed}
        told = httpx.put(f"{collector}{path}/report", content=body, headers=headers)
        sys.stdout.write(f"{listed['id']} {told.status_code}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
