"""The words of privacy claims: one text for each member of their enumerations."""

from collections.abc import Mapping
from typing import Final

from mapveil.privacy.claim import Adversary, Assumes, Neighbouring, Reveals, TrustModel

MODELS: Final[Mapping[TrustModel, str]] = {
    TrustModel.CURATOR: "one trusted curator reads the raw locations",
    TrustModel.SECURE_AGGREGATION: "secure aggregation: the server learns noisy sums over many clients",
    TrustModel.TWO_OPERATORS: (
        "two operators, the leader and the helper, each learn noisy sums, who takes part and which reports pass, "
        "unless they collude"
    ),
    TrustModel.LOCAL: "local: each report is randomized on the client",
    TrustModel.RANDOM_FEATURES: "each client reports for itself, without a privacy budget",
    TrustModel.OBFUSCATION: "each measurement is privatized before it is sent",
}
UNKNOWN_TRUST: Final = "unknown: the server may hold every measurement as it was"
ADVERSARIES: Final[Mapping[Adversary, str]] = {
    Adversary.RELEASE: "whoever sees the release, whatever else they know",
    Adversary.HONEST_SERVER: (
        "a server that follows the protocol and sees noisy sums and who takes part, whatever else it knows"
    ),
    Adversary.MALICIOUS_SERVER: (
        "a server that may deviate from the protocol and sees noisy sums and who takes part, whatever else it knows"
    ),
    Adversary.EITHER_OPERATOR: (
        "either of two operators, the leader or the helper, even one that deviates from the protocol, who sees its "
        "shares, noisy sums, who takes part and which reports pass, whatever else it knows"
    ),
    Adversary.REPORTS: "whoever sees the reports, the server included, whatever else they know",
}
ASSUMPTIONS: Final[Mapping[Assumes, str]] = {
    Assumes.TABLE_SECRET: "the curator keeps the table secret",
    Assumes.DISTINCT_USERS: "different users have different ids, and one user has one id",
    Assumes.OTHER_PEOPLE: (
        "the users are others than those of other budgets who have the same ids, as whoever released it states"
    ),
    Assumes.PLACES_PUBLIC: (
        "not protected: which places are on the map and where they lie, taken from the users' own table as public"
    ),
    Assumes.PRIOR_PUBLIC: (
        "the prior is public, or paid for by its own release: the prior tells nothing about the users beyond that"
    ),
    Assumes.ONE_CLIENT: "each user has one client",
    Assumes.ONE_CONTRIBUTION: "each user takes part once: the epsilons of several contributions add up",
    Assumes.ONE_TRIP: "each user makes one trip: the epsilons of several trips add up",
    Assumes.COMPOSES: "the guarantee is for one {unit}: the epsilons and deltas of several of one user add up",
    Assumes.RUN_LENGTH: (
        "a window-run is all rows of one user in any {windows:g} consecutive windows (w-event privacy)"
    ),
    Assumes.UNITS_OF_USER: (
        "a user has at most {units:g} {unit}s in the series, and is charged the epsilon of each"
    ),
    Assumes.DROPOUT: (
        "at most {tolerated_percent:.4g} % of a shard's clients drop out (checked: otherwise no sum is revealed) and "
        "at most {corrupt_percent:.4g} % add no noise"
    ),
    Assumes.SECURE_SUM: "secure aggregation reveals the sum only (a computational assumption)",
    Assumes.OPERATORS_APART: (
        "the two operators do not collude, and one of them follows the protocol, which includes that it verifies each "
        "report once: a malicious one can change the sums or leave its noise out, and the other's whole noise remains"
    ),
    Assumes.SECRET_SHARES: (
        "shares and proofs reveal that a contribution is well-formed and nothing else (a computational assumption)"
    ),
    Assumes.ROSTER_TRUSTED: "the server names the other clients and is believed: it invents none",
    Assumes.AUTHORITY_APART: (
        "an enrolment authority that does not side with the server certifies each client, and invents none"
    ),
    Assumes.AUTHORITY_OF_OPERATOR: (
        "the server's operator runs the enrolment authority; against invented clients nothing is promised"
    ),
    Assumes.CLIENT_RANDOMNESS: "the client draws its randomness as the code does, from the operating system's source",
    Assumes.CLIENT_ALONE: "each report carries the whole noise: neither a secure sum nor another client is trusted",
    Assumes.PARTICIPATION_PUBLIC: (
        "not protected: that a client takes part, and, where clients without a row in the region, or in a listed "
        "window or category, abstain, that it has one"
    ),
    Assumes.TIMING_PUBLIC: "not protected: that a location is sent, and when; a late client sends one",
    Assumes.PERIOD_PUBLIC: "not protected: the first and the last day of all reports together",
    Assumes.TRIPS_PUBLIC: (
        "not protected: that a trip takes place, about when, and that a late client asks for the traffic"
    ),
    Assumes.SIMULATED_VEHICLES: "protected are simulated vehicles, not the people whose trips were read",
    Assumes.FIXED_FREQUENCIES: (
        "each client draws its frequencies once, for one region and bandwidth, and answers no other query"
    ),
    Assumes.NO_SITE_LIST: "the server has no list of exact sites, such as venues: exact phases tell them apart",
    Assumes.COARSE_SITE_LIST: "the server's list of exact sites is no finer than {jitter_m:g} m",
    Assumes.SINGLE_LOCATION: "measured for clients with one location: the mean of several reveals no more",
    Assumes.BANDWIDTH_READ: (
        "whoever chose the bandwidth read a tenth of the locations without protection, and is trusted with them"
    ),
    Assumes.LOCATIONS_TRUSTED: "the server is trusted with every location",
    Assumes.FLOATING_POINT: "the noise is in floating point, rounded to a centimetre",
    Assumes.PILOT_PUBLIC: "what was learnt from the pilot is public: the pilot's users are not protected",
    Assumes.PILOT_RADIUS_PUBLIC: (
        "what was learnt from the pilot, its clipping radius too, is public: the pilot's users are not protected"
    ),
    Assumes.PILOT_REPRESENTATIVE: "the pilot is like those who report",
    Assumes.PILOT_RAW: "the curator of the pilot saw its rows raw, and what was learnt from them is public",
    Assumes.UNLINKED_REPORTS: "an adversary sees one report of a user, or cannot link several",
    Assumes.ATTACKERS_TRIED: "adversaries are like those that the privatizer was measured against",
    Assumes.PRIVATIZED_INPUT: "the measurements are what 'mapveil signal privatize' wrote",
    Assumes.KEPT_COLUMNS: (
        "not protected: the columns that were kept as they were ({columns}), and all that they tell of users, "
        "locations and times"
    ),
    Assumes.NULL_CODE: (
        "rows unlike the pilot are recognised on the phone and answered empty, as are {error_percent:.3g} % of the "
        "others, so that an empty report is deniable"
    ),
    Assumes.NO_WORST_CASE: (
        "on average only: no epsilon bounds the worst case of one report, and a rare row may be known for sure"
    ),
    Assumes.NOT_CERTIFIED: "nothing was certified for these reports: no attack on them was measured",
}
NEIGHBOURS: Final[Mapping[Neighbouring, str]] = {
    Neighbouring.ADD_OR_REMOVE: "all rows of one {unit} are added or removed",
    Neighbouring.ZERO_OUT: "the contribution of one {unit} is replaced by zero",
    Neighbouring.REPLACE_ONE: "the data of one {unit} are replaced by any other",
}
SIMULATION: Final = (
    "SIMULATION: one process read the raw data and computed every client's reports; what is stated of clients holds "
    "only where they run on the users' own devices."
)
RAW: Final[Mapping[Reveals, tuple[str, str]]] = {
    Reveals.LOCATION: ("not private", "NOT PRIVATE: the map is made of exact locations, without noise."),
    Reveals.UNDOCUMENTED: (
        "not known to be private",
        "NOT KNOWN TO BE PRIVATE: nothing says that the measurements were privatized; take them for raw ones.",
    ),
}
"""Mark and warning of maps of raw data."""
SEEDED: Final = "SEEDED: NOT FOR RELEASE. Whoever knows the seed can remove the noise."
PAIRS: Final[Mapping[Neighbouring, str]] = {
    Neighbouring.ADD_OR_REMOVE: "presence and absence of one {unit}",
    Neighbouring.ZERO_OUT: "a contribution and none of one {unit}",
    Neighbouring.REPLACE_ONE: "two possible values of one {unit}",
}
