"""The quality side of a record of `learning`: where what is learned beats BLOSUM62, and how it differs from it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shared.bench.record import Result
from shared.bench.report.tables import Statement, Table, left_then_right
from shared.learning.baseline import against_blosum

WAYS = {"exact": "best alignments", "soft": "P > ½"}


def fold_table(known: Mapping[str, Any], epochs: int) -> Table:
    """A row for each family that was left out. epochs: of a training at most."""
    rows = []
    for family, fold in known["folds"].items():
        cells = [_rates(fold[model][way]) for model in ("blosum", "learned") for way in WAYS]
        gains = [_shown(fold["gain"][way]["f1"], "+", "\n") for way in WAYS]
        rows.append((family, *cells, *gains))
    rates = [f"{model},\n{way}" for model in ("BLOSUM62", "learned") for way in WAYS]
    gains = [f"learned − BLOSUM62,\nF1, {way}" for way in WAYS]
    headers = ("left out", *rates, *gains)
    below = (
        "Recovered / precise: the part of the true pairs of residues that is predicted, and of the predicted ones that "
        f"is true, in %. Exact: {WAYS['exact']}, of two matches at least; soft: pairs whose probability is above ½.",
        "BLOSUM62 with the affine gaps, and for the soft alignment the temperature, that are best on the families that "
        "were trained on. The 95% interval resamples the sequences of the family; it says nothing of other families.",
        f"Trained and tested in {known['folds by']}.",
        *_cut_off(known, epochs),
        *_at_edge(known),
    )
    return Table("Families that were left out", headers, rows, left_then_right(1, len(headers) - 1), below)


def _cut_off(known: Mapping[str, Any], epochs: int) -> Iterator[str]:
    if names := [family for family, fold in known["folds"].items() if fold["epochs"] >= epochs]:
        yield f"Trained for all {epochs} epochs, and might have become better in more: without {', '.join(names)}."


def _at_edge(known: Mapping[str, Any]) -> Iterator[str]:
    choices = {
        f"{family} left out, {way}": fold["choice"][way] for family, fold in known["folds"].items() for way in WAYS
    }
    choices = {"the quality to reach": known["target"], **choices}
    if names := [name for name, choice in choices.items() if choice["at_edge"]]:
        where = "Of the gaps and temperatures that were tried the best lies at the edge, so that BLOSUM62 may be better"
        yield f"{where} than it is shown: {'; '.join(names)}."


def _rates(found: Mapping[str, Sequence[float]]) -> str:
    return f"{100 * found['recovered'][0]:.1f} / {100 * found['precise'][0]:.1f}"


def _shown(estimate: Sequence[float], sign: str = "", before: str = " ") -> str:
    """A rate or a difference, with its interval unless that excludes nothing, as of two sequences."""
    value, low, high = estimate
    text = f"{value:{sign}.3f}"
    return text if high == 1 and low in (0, -1) else f"{text}{before}({low:{sign}.3f} … {high:{sign}.3f})"


def fold_details(known: Mapping[str, Any]) -> Iterator[Table]:
    """Every rate with its interval, and what was chosen for BLOSUM62."""
    rows = [
        (family, way, model, *(_shown(fold[part][way][name]) for name in ("recovered", "precise", "f1")))
        for family, fold in known["folds"].items()
        for way in WAYS
        for part, model in (("blosum", "BLOSUM62"), ("learned", "learned"), ("gain", "learned − BLOSUM62"))
    ]
    headers = ("left out", "alignment", "model", "recovered", "precise", "F1")
    yield Table("Families that were left out, every rate", headers, rows, left_then_right(3, 3))
    rows = []
    for family, fold in known["folds"].items():
        choices = [_choice(way, choice) for way, choice in fold["choice"].items()]
        rows.append((family, str(fold["pairs"]), str(fold["epochs"]), *choices))
    headers = ("left out", "pairs", "epochs", *(f"best gaps, {way}" for way in WAYS))
    yield Table("What families that were left out were tested on", headers, rows, left_then_right(1, 4))


def _choice(way: str, choice: Mapping[str, Any]) -> str:
    gaps = f"{choice['gap_open']:g} / {choice['gap_extend']:g}"
    return f"{gaps}, T = {choice['temperature']:g}" if way == "soft" else gaps


def matrix_table(results: Sequence[Result]) -> Table:
    """What each framework learned with the first seed, trained to its early stop."""
    rows = []
    for result in results:
        curve = result.details["curve"]
        found = against_blosum(np.array(curve["matrix"]))
        best = max(epoch["quality"] for epoch in curve["history"])
        gaps = " / ".join(f"{gap:.2f}" for gap in curve["gaps"])
        rows.append((
            result.case.name, str(len(curve["history"])), f"{best:.3f}", f"{found.correlation:.2f}",
            f"{found.off_diagonal:.2f}", f"{found.scale:.2f}", gaps,
        ))  # fmt: skip
    headers = ("", "epochs\ntrained", "best\nquality", "correlation\nwith BLOSUM62", "off the\ndiagonal",
               "scale", "gap: open /\nextend")  # fmt: skip
    below = (
        "Correlation: Pearson's, over the 210 distinct pairs of residues. Scale: the matrix as a multiple of BLOSUM62, "
        "by least squares.",
    )
    return Table("What was learned, first seed", headers, rows, left_then_right(1, len(headers) - 1), below)


def gains(known: Mapping[str, Any]) -> Iterator[Statement]:
    """Where learning beats BLOSUM62, and where not."""
    for way, about in WAYS.items():
        found = {family: fold["gain"][way]["f1"] for family, fold in known["folds"].items()}
        better = [family for family, (_, low, _) in found.items() if low > 0]
        worse = [family for family, (_, _, high) in found.items() if high < 0]
        rest = [family for family in found if family not in (*better, *worse)]
        text = f"the learned model is better than BLOSUM62 on {', '.join(better) or 'no family'}"
        text += f", worse on {', '.join(worse)}" if worse else ""
        text += f"; no difference is shown on {', '.join(rest)}" if rest else ""
        mean = np.mean([value for value, _, _ in found.values()])
        text += f". The differences of F1 have a mean of {mean:+.3f}, which is not tested."
        yield Statement(f"Families left out, {way} ({about})", text)
