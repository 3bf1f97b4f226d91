"""TurboSHAKE128 (RFC 9861), which no library that is installed here has: a primitive, as AES and X25519 are."""

ROUNDS = bytes.fromhex(
    "000000008000808b800000000000008b80000000000080898000000000008003800000000000800280000000000000800000"
    "00000000800a800000008000000a8000000080008081800000000000808000000000800000018000000080008008"
)
TURNS = (0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14)


def turned(lane: int, by: int) -> int:
    return (lane << by | lane >> (64 - by)) & (2**64 - 1)


def permuted(a: list[int]) -> list[int]:
    for start in range(0, 96, 8):
        c = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        b = [0] * 25
        for i in range(25):
            theta = a[i] ^ c[(i + 4) % 5] ^ turned(c[(i + 1) % 5], 1)
            b[i // 5 + 5 * ((2 * (i % 5) + 3 * (i // 5)) % 5)] = turned(theta, TURNS[i])
        a = [b[i] ^ (~b[i - i % 5 + (i + 1) % 5] & b[i - i % 5 + (i + 2) % 5]) for i in range(25)]
        a[0] ^= int.from_bytes(ROUNDS[start : start + 8], "big")
    return a


def turbo_shake(message: bytes, domain: int, size: int) -> bytes:
    padded = bytearray(message + bytes([domain]) + bytes(167 - len(message) % 168))
    padded[-1] ^= 0x80
    state, made = [0] * 25, b""
    for start in range(0, len(padded), 168):
        for i in range(21):
            state[i] ^= int.from_bytes(padded[start + 8 * i : start + 8 * i + 8], "little")
        state = permuted(state)
    while len(made) < size:
        made += b"".join(lane.to_bytes(8, "little") for lane in state[:21])
        state = permuted(state)
    return made[:size]
