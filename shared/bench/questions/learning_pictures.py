"""The pictures of `learning`: quality over time, the learned matrix beside BLOSUM62, and one hard pair."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import LogLocator, NullFormatter

from shared.bench.cases import FRAMEWORKS
from shared.bench.questions.learning_answer import COLD, WARM, by_variant, common
from shared.bench.questions.learning_quality import LEVELS
from shared.bench.record import Record, Result
from shared.bench.report.plots import COLOURS, SECONDS, drawn
from shared.bench.report.tables import Plot
from shared.learning.baseline import blosum
from shared.learning.families import ALPHABET

# residues in the order of the heat maps: alike ones side by side
_ORDER = "CSTPAGNDEQHRKMILVFYW"
_PROBABLE = LinearSegmentedColormap.from_list("probable", [f"{COLOURS['jax']}00", COLOURS["jax"]])
_TRUE = {"color": COLOURS["torch"], "alpha": 0.35, "linewidth": 4, "solid_capstyle": "round"}
_INK = "#14181f"


def pictures(record: Record) -> Iterator[Plot]:
    """Of the page."""
    known = common(record)
    for variant, own in by_variant(record).items():
        trained = [result for result in own if result.details["trainings"]]
        if trained:
            yield Plot(
                f"Validation quality over time ({variant})",
                _curves(trained, known["target"]["quality"]),
                "Higher and further left is better. A marker is the end of an epoch. Solid: cold, compiling on "
                "the way; dashed: warm. Each seed has its lines; those of the first go on to the early stop. The "
                "horizontal line is the quality to reach.",
            )
    learned = [r for own in by_variant(record).values() for r in own if r.details.get("curve", {}).get("matrix")]
    if learned:
        name = learned[0].case.name
        yield Plot(
            f"The learned matrix ({name}) beside BLOSUM62",
            _matrices(np.array(learned[0].details["curve"]["matrix"])),
            "Similarity of residues: red above 0, blue below, each matrix on its own scale. Alike residues stand side "
            "by side.",
        )
    for picture in record.pictures.values():
        first, second = picture["sequences"]
        yield Plot(
            f"A hard pair of {picture['family']}, which was left out",
            _alignments(picture),
            "The darker a cell, the more probable that its two residues are matched. The broad line: the true pairs. "
            "Of pairs of at most 100 residues this is the one that BLOSUM62 aligns worst "
            f"(F1 {picture['f1']:.2f}): {first} downwards, {second} to the right.",
        )


def _curves(results: Sequence[Result], target: float) -> str:
    def draw(axes: Axes) -> None:
        for result in results:
            colour, name = COLOURS[result.case.framework], FRAMEWORKS[result.case.framework]
            for number, process in result.details["trainings"].items():
                curve = result.details.get("curve") if number == "0" else None
                for how, line in ((COLD, "-"), (WARM, "--")):
                    history = (curve if curve and how == COLD else process[how])["history"]
                    points = [(epoch["seconds"], epoch["quality"]) for epoch in history]
                    label = f"{name}, {how}" if number == "0" else None
                    axes.plot(*zip(*points, strict=True), line, color=colour, marker=".", linewidth=1.1, label=label)
        axes.axhline(target, color=_INK, linewidth=1)
        axes.annotate("BLOSUM62", (1, target), (-2, 3), xycoords=("axes fraction", "data"),
                      textcoords="offset points", horizontalalignment="right")  # fmt: skip
        axes.set(xlabel="time in steps and validation", ylabel="F1 on the validation families", xscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(SECONDS)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)

    return drawn(draw, 7.2, 4)


def _matrices(learned: np.ndarray) -> str:
    order = [ALPHABET.index(letter) for letter in _ORDER]

    def draw(*both: Axes) -> None:
        for axes, (title, matrix) in zip(both, {"learned": learned, "BLOSUM62": blosum()}.items(), strict=True):
            most = np.abs(matrix).max()
            axes.imshow(matrix[np.ix_(order, order)], cmap="RdBu_r", vmin=-most, vmax=most)
            axes.set_xticks(range(len(order)), _ORDER)
            axes.set_yticks(range(len(order)), _ORDER)
            axes.set_title(title)
            axes.grid(visible=False)
            axes.tick_params(length=0, labelsize=8)

    return drawn(draw, 8.4, 4.6, columns=2)


def _alignments(picture: Mapping[str, Any]) -> str:
    truth = np.reshape(picture["truth"], (-1, 2))
    stretches = np.split(truth, np.flatnonzero((np.diff(truth, axis=0) != 1).any(1)) + 1)
    titles = {"start": "before learning", "BLOSUM62": "BLOSUM62", "learned": "after learning"}

    def draw(*every: Axes) -> None:
        for axes, (name, title) in zip(every, titles.items(), strict=True):
            probable = [[LEVELS.index(level) for level in row] for row in picture["soft"][name]]
            for stretch in stretches:
                axes.plot(stretch[:, 1], stretch[:, 0], **_TRUE)
            axes.imshow(probable, cmap=_PROBABLE, vmin=0, vmax=len(LEVELS) - 1, interpolation="none", zorder=3)
            shows_none = not np.any(probable)
            axes.set_title(f"{title}: all below {0.5 / (len(LEVELS) - 1):.0%}" if shows_none else title)
            axes.grid(visible=False)
        every[0].set_ylabel("residue")

    rows, cols = len(picture["soft"]["start"]), len(picture["soft"]["start"][0])
    return drawn(draw, 10.5, 0.9 + 3.2 * rows / cols, columns=3)
