"""The server's side of a collection's terms: mechanism, tiling with outlines, both halves of a randomizer."""

from collections.abc import Callable
from functools import cached_property

from mapveil.collector.refusals import Invalid
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.tiling import Tiling
from mapveil.geo.windows import Windows
from mapveil.local.estimators.estimators import check_reports
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.local_series import LocalSeries
from mapveil.local.randomizers.randomizer import Randomizer
from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil.mechanisms.methods import SERIES, find_method
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.message import ReportReader
from mapveil_client.random_features import report as feature_report
from mapveil_client.terms import CollectionTerms
from mapveil_client.two_operators.hpke import KEY_BYTES
from mapveil_client.two_operators.sealed_report import SEAL_BYTES, Report


class Offer:
    """The server's side of the terms that devices are told. Not kept: a randomizer's tables are large.

    Each property raises an :class:`InputError` where the terms cannot be used, or are of another trust model.

    Parameters
    ----------
    terms : CollectionTerms
        Of the collection.
    """

    def __init__(self, terms: CollectionTerms) -> None:
        self._terms = terms

    @cached_property
    def mechanism(self) -> AnyMechanism:
        """The mechanism with the terms' parameters."""
        terms = self._terms
        if terms.windows is not None:
            given = {**terms.options, "windows": Windows.from_dict(dict(terms.windows))}
            return SERIES[terms.trust].make(terms.epsilon, given)
        return find_method(terms.method, terms.trust).make(terms.epsilon, terms.options)

    @cached_property
    def tiling(self) -> Tiling:
        """The tiling, with outlines."""
        return tiling_from_dict(self._terms.tiling)

    @property
    def sums(self) -> SumMechanism:
        """The mechanism of a distributed collection."""
        if isinstance(found := self.mechanism, SumMechanism):
            return found
        raise self._other("sums")

    @property
    def model(self) -> SecureAggregation:
        """The secure sums of a distributed collection."""
        if isinstance(found := self.sums.trust, SecureAggregation):
            return found
        raise self._other("sums")

    @property
    def local(self) -> LocalMechanism:
        """The mechanism of a local collection."""
        if isinstance(found := self.mechanism, LocalMechanism):
            return found
        raise self._other("local")

    @property
    def features(self) -> FourierKde:
        """The mechanism of a random-features collection."""
        if isinstance(found := self.mechanism, FourierKde):
            return found
        raise self._other("features")

    @cached_property
    def randomizer(self) -> Randomizer:
        """Both halves of the randomizer of a local collection."""
        randomizer = self._of_report.on(Domain(self.tiling))
        check_reports(self.local.estimator, randomizer)
        return randomizer

    @property
    def _of_report(self) -> LocalMechanism:
        return self.local.of_report if isinstance(self.local, LocalSeries) else self.local

    def report_check(self) -> Callable[[bytes], None]:
        """Make the check that refuses a body that is not a report, and never says what the report says. CPU-heavy."""
        if self._terms.trust == "operators":
            return check_sealed(self._terms)
        read: Callable[[bytes], object]
        if self._terms.trust == "local":
            read = ReportReader(self.randomizer, windows_of(self._terms)).read
        else:
            query = self._terms.features_query

            def read(body: bytes) -> object:
                return feature_report.read_reports([body], query)

        def check(body: bytes) -> None:
            try:
                read(body)
            except InputError as error:
                raise Invalid(f"the report {str(error).removeprefix('report 0: ')}") from None

        return check

    def _other(self, wanted: str) -> ParameterError:
        terms = self._terms
        return ParameterError(
            f"method must be one of {wanted}, got {terms.method} of trust model {terms.trust}"
        )


def windows_of(terms: CollectionTerms) -> int | None:
    """Number of windows of a series; None without one."""
    return None if terms.series is None else terms.series.count


def check_sealed(terms: CollectionTerms) -> Callable[[bytes], None]:
    """Make the check of what the leader can see of a report to two operators: its form, and the sizes of its parts."""
    configs = terms.configs
    public = terms.sharding.sizes(0)[0]

    def check(body: bytes) -> None:
        try:
            report = Report.decode(body)
        except InputError as error:
            raise Invalid(str(error)) from None
        sealed = [len(share.sealed.payload) for share in report.shares]
        expected = [terms.sharding.sizes(each)[1] + SEAL_BYTES for each in range(len(configs))]
        numbers = [share.config for share in report.shares]
        if any(len(share.sealed.enc) != KEY_BYTES for share in report.shares):
            raise Invalid(f"an encapsulated key of the report must have {KEY_BYTES} bytes")
        if (len(report.public), sealed) != (public, expected) or numbers != [each.number for each in configs]:
            raise Invalid("the report's parts have other sizes, or are sealed for other keys")

    return check
