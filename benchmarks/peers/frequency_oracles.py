"""Seconds of the processor for so many users of pure-ldp's or multi-freq-ldpy's frequency oracles: randomizing,
adding up, estimating.

Usage: frequency_oracles.py LIBRARY ORACLE USERS SITES EPSILON
"""

import json
import sys
import time

import numpy as np

library, oracle, users, sites, epsilon = (
    sys.argv[1],
    sys.argv[2],
    int(sys.argv[3]),
    int(sys.argv[4]),
    float(sys.argv[5]),
)
places = np.random.default_rng(0).integers(0, sites, users).tolist()

if library == "pure-ldp":
    from pure_ldp.frequency_oracles import (
        DEClient,
        DEServer,
        HadamardResponseClient,
        HadamardResponseServer,
        LHClient,
        LHServer,
        UEClient,
        UEServer,
    )

    options = {"olh": {"use_olh": True}, "unary": {"use_oue": True}}.get(oracle, {})
    clients = {"grr": DEClient, "unary": UEClient, "olh": LHClient, "hr": HadamardResponseClient}
    servers = {"grr": DEServer, "unary": UEServer, "olh": LHServer, "hr": HadamardResponseServer}
    server = servers[oracle](epsilon, sites, **options)
    if oracle == "hr":
        options = {"hash_funcs": server.get_hash_funcs()}
    client = clients[oracle](epsilon, sites, **options)
    start = time.process_time()
    for place in places:
        server.aggregate(client.privatise(place + 1))
    # As its documentation has it; estimates are made once, for all sites.
    server.estimate_all(range(1, sites + 1), suppress_warnings=True)
else:
    from multi_freq_ldpy.pure_frequency_oracles import GRR, LH, SS, UE

    module, prefix = {"grr": (GRR, "GRR"), "unary": (UE, "UE"), "olh": (LH, "LH"), "subset": (SS, "SS")}[
        oracle
    ]
    randomize, add_up = getattr(module, f"{prefix}_Client"), getattr(module, f"{prefix}_Aggregator_MI")
    # Compiled at the first call, which is not counted.
    some = [randomize(place, sites, epsilon) for place in places[:2]]
    add_up(some, epsilon) if oracle == "unary" else add_up(some, sites, epsilon)
    start = time.process_time()
    reports = [randomize(place, sites, epsilon) for place in places]
    add_up(reports, epsilon) if oracle == "unary" else add_up(reports, sites, epsilon)
print(json.dumps({"seconds": time.process_time() - start, "users": users}))
