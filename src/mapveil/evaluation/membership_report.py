"""The report of the membership attack: text, a picture, and one page that needs only a browser."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil.attacks.roc import RATES, Estimate95, largest_tpr
from mapveil.evaluation.html_report import (
    COLOURS,
    figure_grid,
    not_private_png,
    text_table,
    write_atomically,
)
from mapveil.pictures.report_page import NOT_PRIVATE, html_page, html_picture, html_table

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from mapveil.attacks.attack_membership import MembershipReport

_MEMBERSHIP_HEAD: Final = (
    "published",
    "AUC",
    "at most",
    *(text for rate in RATES for text in (f"TPR at FPR {rate:.1%}", "at most")),
)
_WINDOWS_HEAD: Final = ("published", "windows right", "people picked out")
_ADVERSARY: Final = "The adversary knows where a person was and asks whether that person is in a map."
_PRIOR: Final = {
    "groups": "It has seen maps of other groups, published the same way, and knows who was in those.",
    "map": "It knows where half of the people of both tables were, and not who of them are in the map.",
}
_LIMITS: Final = (
    "A low figure says that this adversary failed with these people. It does not prove that another adversary fails, "
    "or that nobody stands out: the TPR at FPR 0.1% looks at those who are easiest to find. 'At most' follows from "
    "epsilon, and holds for every adversary."
)
_TRACKS: Final = (
    "The adversary has one map for each window and the number of people, and links positions that are close. A "
    "person is picked out where the recovered track is right in half of the windows, and fits nobody else as well. "
    "An epsilon is that of all windows together."
)


def membership_text(report: MembershipReport) -> str:
    """The report for a terminal."""
    lines = [text_table(_MEMBERSHIP_HEAD, _membership_rows(report))]
    if report.recoveries:
        lines += ["", text_table(_WINDOWS_HEAD, _recovery_rows(report))]
    return "\n".join([*lines, "", *_findings(report), _LIMITS, *(f"note: {note}" for note in report.notes)])


def save_membership(report: MembershipReport, path: Path) -> None:
    """Write the report as ``.json``, ``.png`` or ``.html``."""
    if path.suffix.lower() == ".json":
        content = json.dumps(report.to_dict(), indent=2).encode()
    else:
        content = _picture(report)
        content = content if path.suffix.lower() == ".png" else _page(report, content)
    write_atomically(path, content)


def _membership_rows(report: MembershipReport) -> list[list[str]]:
    return [
        [
            row.published,
            _with_interval(row.auc, "{:.3f}"),
            _bound(row.auc, "{:.3f}"),
            *(text for rate in row.tpr for text in (_with_interval(rate, "{:.2%}"), _bound(rate, "{:.2%}"))),
        ]
        for row in report.memberships
    ]


def _recovery_rows(report: MembershipReport) -> list[list[str]]:
    return [
        [row.published, _with_interval(row.right, "{:.1%}"), f"{row.unique:.0%}"] for row in report.recoveries
    ]


def _with_interval(found: Estimate95, form: str) -> str:
    value, low, high = map(form.format, (found.value, found.low, found.high))
    return f"{value} ({low} .. {high})"


def _bound(found: Estimate95, form: str) -> str:
    return "no limit" if found.bound is None else form.format(found.bound)


def _findings(report: MembershipReport) -> list[str]:
    return [
        f"{row.published}: of two people, one in the map and one not, the adversary tells which is which in "
        f"{row.auc.value:.0%} of the cases{_against_bound(row.auc)}."
        for row in report.memberships
    ]


def _against_bound(auc: Estimate95) -> str:
    if auc.bound is None:
        return ""
    text = f"; no adversary can in more than {auc.bound:.0%}"
    if auc.low <= auc.bound < auc.value:
        text += f", which is within this estimate's error ({auc.low:.3f} .. {auc.high:.3f})"
    return text


def _picture(report: MembershipReport) -> bytes:
    """AUC with intervals and bounds, ROC curves on logarithmic axes, and recovered trajectories."""
    tall = 1.6 + 0.32 * max(len(report.memberships), len(report.recoveries))
    figure, axes = figure_grid(2 + bool(report.recoveries), 5.4, max(tall, 3.6), columns=2)
    names = [row.published for row in report.memberships]
    _bars(axes[0], names, [row.auc for row in report.memberships], COLOURS)
    axes[0].axvline(0.5, color="#6b6b6b", linewidth=1)
    axes[0].set(title="Membership: AUC (0.5: guessing; |: at most)", xlim=(0.4, 1.0))
    rates = np.geomspace(1e-3, 1.0, 81)
    for at, row in enumerate(report.memberships):
        fpr, tpr = np.array(row.curve).T
        colour = COLOURS[at % len(COLOURS)]
        axes[1].plot(fpr, tpr, color=colour, label=row.published)
        if row.guarantee is not None:
            axes[1].plot(rates, largest_tpr(rates, *row.guarantee), "--", color=colour, linewidth=1)
    axes[1].plot(rates, rates, ":", color="#6b6b6b", label="guessing")
    axes[1].set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1.1))
    axes[1].set(title="ROC (dashed: at most)", xlabel="false-positive rate", ylabel="true-positive rate")
    axes[1].legend(fontsize=7, loc="lower right")
    if report.recoveries:
        names = [row.published for row in report.recoveries]
        _bars(axes[2], names, [row.right for row in report.recoveries], ("#b9b9c2", *COLOURS))
        axes[2].set(title="Trajectories: fraction of windows right", xlim=(0, 1))
    return not_private_png(figure)


def _bars(axes: Axes, names: list[str], found: list[Estimate95], colours: tuple[str, ...]) -> None:
    at = np.arange(len(names))
    value, low, high = (
        np.array([getattr(each, side) for each in found]) for side in ("value", "low", "high")
    )
    axes.barh(at, value, color=[colours[place % len(colours)] for place in at], alpha=0.8, height=0.6)
    margin = np.maximum([value - low, high - value], 0.0)
    axes.errorbar(value, at, xerr=margin, fmt="none", ecolor="black", capsize=3, linewidth=1)
    for place, each in enumerate(found):
        if each.bound is not None:
            axes.plot([each.bound] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.set_yticks(at, names, fontsize=8)
    axes.invert_yaxis()


def _page(report: MembershipReport, picture: bytes) -> bytes:
    findings = "".join(f"<li>{html.escape(text)}</li>\n" for text in _findings(report))
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in report.notes)
    tracks = ""
    if report.recoveries:
        table = html_table(_WINDOWS_HEAD, _recovery_rows(report))
        tracks = f"<h2>Trajectories</h2>\n<p>{_TRACKS}</p>\n{table}"
    prior = _PRIOR["map" if "map" in report.settings else "groups"]
    body = (
        f"<p>{_ADVERSARY} {prior}</p>\n<ul>{findings}</ul>\n<p>{html.escape(_LIMITS)}</p>\n{notes}"
        f"{html_picture(picture, 'Figures with intervals of 95 %, and the most that each guarantee allows')}"
        f"<h2>Membership</h2>\n{html_table(_MEMBERSHIP_HEAD, _membership_rows(report))}{tracks}"
        f"<h2>Settings</h2>\n{html_table(('setting', 'value'), report.settings.items())}"
    )
    return html_page("Can people be found in the published maps?", body, NOT_PRIVATE)
