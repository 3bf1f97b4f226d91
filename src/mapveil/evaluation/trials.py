"""One trial: release the same sums by every method at every epsilon, and measure each map.

Comparisons and reproductions all run through :func:`run_task`, so that there is one way a mechanism is measured: the
true map is the sum of the sampled users' shares without noise, and both maps are smoothed and normalised alike.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from mapveil.engines import UNIT, UserSums
from mapveil.evaluation.comparison import Row
from mapveil.evaluation.sampled_people import Population
from mapveil.evaluation.scoring import Scoring
from mapveil.formats.read_prior import read_prior
from mapveil.geo.counts import Counts
from mapveil.geo.tiling import Tiling
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import AnyMechanism
from mapveil.mechanisms.methods import find_method, option_value
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import ParameterError, check
from mapveil_client.randomness.random import Randomness

Progress = Callable[[str, float], None]
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_THREADS: Final = "OMP_NUM_THREADS"

UNIFORM: Final = "uniform baseline"
"""In the place of a method: the map that asks nobody."""


@dataclass(frozen=True)
class MethodSpec:
    """A method as requested."""

    label: str  # in rows and curves
    name: str  # in the table of methods
    options: tuple[tuple[str, Any], ...] = ()  # parameters of the mechanism that were given
    trust: str = "central"

    def mechanism(self, epsilon: Fraction, users: int | None = None) -> AnyMechanism:
        """The mechanism; a declared number of users goes where it wants one and none was given."""
        method = find_method(self.name, self.trust)
        options = dict(self.options)
        if users is not None and "users" in method.options():
            options.setdefault("users", users)
        return method.make(epsilon, options)


def parse_methods(texts: Sequence[str]) -> tuple[MethodSpec, ...]:
    """Read methods as :func:`parse_method` does, without repetition; at least one."""
    if not texts:
        raise ParameterError("methods must hold at least one name from the table of methods")
    return tuple(dict.fromkeys(parse_method(text) for text in texts))


def parse_method(text: str) -> MethodSpec:
    """Read ``name``, ``trust/name`` or ``name:key=value:key=value``; a ``prior`` is the path of its file.

    Examples
    --------
    >>> parse_method("laplace:clip=false").options
    (('clip', False),)
    >>> parse_method("distributed/adaptive").trust
    'distributed'
    """
    named, *parts = text.strip().split(":")
    trust, slash, name = named.partition("/")
    trust, name = (trust, name) if slash else ("central", named)
    find_method(name, trust)
    options = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ParameterError(f"method {text!r}: {part!r} is not an option; write name:key=value")
        named_option = key.strip().replace("-", "_")
        read = read_prior if named_option == "prior" else option_value
        options.append((named_option, read(value.strip())))
    if len({key for key, _ in options}) < len(options):
        raise ParameterError(f"method {text!r}: an option is given twice")
    return MethodSpec(text.strip(), name, tuple(options), trust)


class Task(NamedTuple):
    """One trial's data and everything to do with it; picklable."""

    group: str  # the part of an experiment, such as a city or a number of users
    trial: int
    sums: IntArray  # exact, units of 1 / UNIT user
    tiling: Tiling
    users: int | None  # declared to mechanisms that want a public number
    methods: tuple[MethodSpec, ...]
    epsilons: tuple[Fraction, ...]
    scorings: tuple[Scoring, ...]
    seed: int
    keep_maps: bool = False
    people: Population | None = None  # whose sums they are, for methods that need a device each
    truth: FloatArray | None = (
        None  # users per cell that maps are measured against, those of the sums by default
    )
    uniform: bool = False  # whether to measure the uniform baseline too


class Outcome(NamedTuple):
    """Result of a task. Not private."""

    group: str
    trial: int
    rows: tuple[tuple[Row, ...], ...]  # one tuple of rows per scoring
    truth: FloatArray | None  # users per cell, where maps were kept
    maps: dict[tuple[str, float], FloatArray]  # by method and epsilon, where maps were kept


def run_task(task: Task) -> Outcome:
    """Release and measure; every release's noise depends on seed, group, trial, method and epsilon only."""
    tiling = task.tiling
    truth = task.sums / UNIT if task.truth is None else task.truth
    scorers = [scoring.against(truth, tiling) for scoring in task.scorings]
    stream = Randomness(task.seed).child(f"noise/{task.group}/{task.trial}")
    rows: list[list[Row]] = [[] for _ in scorers]
    maps: dict[tuple[str, float], FloatArray] = {}
    if task.uniform:
        area = tiling.area_m2()
        for place, scorer in zip(rows, scorers, strict=True):
            for metric, value in scorer(truth.sum() * area / area.sum()).items():
                place += [Row(UNIFORM, float(each), task.trial, metric, value, 0.0) for each in task.epsilons]
    for method in task.methods:
        for epsilon in task.epsilons:
            mechanism = method.mechanism(epsilon, task.users)
            rng = stream.child(f"{method.label}/{epsilon}")
            source = material(method, UserSums(task.sums, tiling), task.people)
            start = time.perf_counter()
            made = mechanism.release(source, tiling, account=None, rng=rng)
            seconds, values = time.perf_counter() - start, made.values
            length = RoundCost.total_length(made.rounds)
            for place, scorer in zip(rows, scorers, strict=True):
                for metric, value in scorer(values).items():
                    place.append(
                        Row(method.label, float(epsilon), task.trial, metric, value, seconds, length)
                    )
            if task.keep_maps:
                maps[method.label, float(epsilon)] = values
    kept = truth if task.keep_maps else None
    return Outcome(task.group, task.trial, tuple(tuple(place) for place in rows), kept, maps)


def material(method: MethodSpec, sums: UserSums, people: Population | None = None) -> Any:
    """The data of a method: exact sums for a curator, else a client for each user, in the local model at one cell.

    Where only sums are known, whole users are made of them: a client at one location each.
    """
    if method.trust == "central":
        return sums
    if people is not None:
        return people.most_visited() if method.trust == "local" else people.on_devices()
    return Counts(np.rint(sums.sums / UNIT).astype(np.int64), sums.tiling, "simulated users")


def in_processes(
    function: Callable[[Asked], Answer],
    tasks: Sequence[Asked],
    *,
    workers: int = 1,
    progress: Progress | None = None,
    step: str = "trials",
) -> Iterator[Answer]:
    """Call a function of a module for each task, and yield the answers in order.

    The answers are the same for any number of workers. One worker is this process; more are spawned, so that a script
    must guard its entry, and tasks and answers must be picklable. A spawned worker has one OpenMP thread unless
    ``OMP_NUM_THREADS`` says otherwise. ``progress`` receives ``step`` and the fraction done.
    """
    check(workers >= 1, "workers", "at least 1", workers)
    tell = progress or (lambda step, done: None)
    tell(step, 0.0)
    if workers == 1 or len(tasks) <= 1:
        for done, task in enumerate(tasks, start=1):
            yield function(task)
            tell(step, done / len(tasks))
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(tasks)), context, _end_with_parent) as pool:
        try:
            with _one_thread_each():
                answers = pool.map(function, tasks)  # starts the workers
            for done, answer in enumerate(answers, start=1):
                yield answer
                tell(step, done / len(tasks))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that start here have one OpenMP thread: threads of several workers wait for one another."""
    import os

    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_THREADS]


def _end_with_parent() -> None:
    """End a worker when the process that started it is gone, which a killed one cannot do itself."""
    import multiprocessing
    import os
    import threading

    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def exact_epsilons(epsilons: Sequence[Any]) -> tuple[Fraction, ...]:
    """Read a list of budgets exactly, ascending and without repetition; at least one."""
    found = tuple(sorted({as_epsilon(value) for value in epsilons}))
    if not found:
        raise ParameterError("epsilons must hold at least one number above 0")
    return found


def trial_sample_stream(seed: int, group: str, trial: int) -> np.random.Generator:
    """The generator that draws a trial's users, the same whatever methods are compared."""
    return Randomness(seed).child(f"sample/{group}/{trial}").generator()
