"""The alignments: what each is called, what it counts, and its arguments. Whatever lists them reads this table."""

from typing import Any, NamedTuple


class Alignment(NamedTuple):
    """One public function: its line of text, and its keyword arguments with their defaults."""

    text: str
    parameters: dict[str, float]  # differentiable
    options: dict[str, Any]


ALIGNMENTS = {
    "smith_waterman": Alignment(
        "smooth local alignment with a linear gap", {"gap": -1.0, "temperature": 1.0}, {"end": "any"}
    ),
    "smith_waterman_affine": Alignment(
        "smooth local alignment with an affine gap",
        {"gap_open": -3.0, "gap_extend": -1.0, "temperature": 1.0},
        {"restrict_turns": True, "penalize_turns": True},
    ),
    "free_gap": Alignment("smooth global alignment whose gaps cost nothing", {"temperature": 1.0}, {}),
    "needleman_wunsch": Alignment("smooth global alignment with a linear gap", {"gap": -1.0, "temperature": 1.0}, {}),
}
