"""One SecAgg+ round from Flower's primitives, put together as its client mod and server workflow do.

A slice of the clients and of the server's work is run and multiplied up: all of it would take minutes.
"""

import json
import os
import sys
import time

import numpy as np
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

MODULUS = 1 << 32
clients, length, neighbours, threshold, dropped, sliced = map(int, sys.argv[1:])
shape = [(length,)]
pairs = [generate_key_pairs() for _ in range(neighbours)]
public = [public_key_to_bytes(pair[1]) for pair in pairs]


def client() -> tuple[list[bytes], list[bytes]]:
    """A client's four steps; returns the shares of its seed and of its key."""
    (secret_1, _), (secret_2, _) = generate_key_pairs(), generate_key_pairs()
    key_1, key_2 = private_key_to_bytes(secret_1), private_key_to_bytes(secret_2)
    seed = os.urandom(32)
    seed_shares = create_shares(seed, threshold, neighbours + 1)
    key_shares = create_shares(key_1, threshold, neighbours + 1)
    sent, keys = [], []
    for i in range(neighbours):
        keys.append(generate_shared_key(bytes_to_private_key(key_2), bytes_to_public_key(public[i])))
        sent.append(encrypt(keys[-1], share_keys_plaintext_concat(0, i, seed_shares[i], key_shares[i])))
    for i in range(neighbours):  # as many come back
        share_keys_plaintext_separate(decrypt(keys[i], sent[i]))
    vector = parameters_addition([np.zeros(length, dtype=np.int64)], pseudo_rand_gen(seed, MODULUS, shape))
    for i in range(neighbours):
        key = generate_shared_key(bytes_to_private_key(key_1), bytes_to_public_key(public[i]))
        change = parameters_addition if i % 2 else parameters_subtraction
        vector = change(vector, pseudo_rand_gen(key, MODULUS, shape))
    parameters_mod(vector, MODULUS)
    return seed_shares, key_shares


start = time.process_time()
made = [client() for _ in range(sliced)]
each_client = (time.process_time() - start) / sliced

# The server adds, then rebuilds with every share that came: of a survivor's seed, or of a lost key.
left = neighbours + 1 - round(neighbours * dropped / clients)
total = [np.zeros(length, dtype=np.int64)]
start = time.process_time()
for seed_shares, _ in made:
    total = parameters_addition(total, [np.ones(length, dtype=np.int64)])
    seed = combine_shares(seed_shares[:left])
    total = parameters_subtraction(total, pseudo_rand_gen(seed, MODULUS, shape))
each_survivor = (time.process_time() - start) / sliced
start = time.process_time()
for _, key_shares in made[: max(1, sliced // 4)]:
    key_1 = combine_shares(key_shares[:left])
    for i in range(neighbours):
        key = generate_shared_key(bytes_to_private_key(key_1), bytes_to_public_key(public[i]))
        total = parameters_addition(total, pseudo_rand_gen(key, MODULUS, shape))
each_dropped = (time.process_time() - start) / max(1, sliced // 4)

print(
    json.dumps(
        {
            "client": each_client,
            "server": each_survivor * (clients - dropped) + each_dropped * dropped,
        }
    )
)
