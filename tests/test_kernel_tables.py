"""The kernels in C++ and in Triton state the recurrences again, for their compilers: they must be the table's."""

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from frameworks import PROBLEMS

from shared.alignments import ANYWHERE, IN_THE_LAST_CELL, ON_A_LATER_MATCH, SIMILARITY, Recurrence, recurrence_of
from shared.kernels import cpp

EVERY = pytest.mark.parametrize(
    ("problem", "options"), [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
)
# a choice without its order: (neighbour, state), terms
Row = tuple[tuple[str, int] | None, frozenset[str]]


def rows_of(recurrence: Recurrence) -> list[set[Row]]:
    return [
        {((c.neighbour, c.state) if c.neighbour else None, frozenset(c.terms)) for c in choices}
        for choices in recurrence.states
    ]


def names_of_costs(problem: str, options: dict[str, Any]) -> dict[str, set[str]]:
    """The table's names of the kernels' costs."""
    if problem == "free_gap":
        return {"open": set(), "extend": set(), "turn": set(), "back": set()}
    if problem != "smith_waterman_affine":
        return {"open": {"gap"}}
    turn = {"gap_open"} if options["penalize_turns"] else {"gap_extend"}
    return {"open": {"gap_open"}, "extend": {"gap_extend"}, "turn": turn, "back": turn}


# C++: a program prints the tables of the header

STRUCTS = {
    ("smith_waterman", "any"): "LocalLinear<End::anywhere>",
    ("smith_waterman", "match"): "LocalLinear<End::after_match>",
    ("smith_waterman_affine", None): "LocalAffine",
    ("free_gap", None): "GlobalLinear",
    ("needleman_wunsch", None): "GlobalLinear",
}
PROGRAM = """
#include <cstdio>
#include "recurrences.h"
using namespace alignment;
const char *FROM[] = {"start", "diagonal", "left", "up"}, *COST[] = {"none", "match", "open", "extend", "turn", "back"};
template <class Kind> void print(const char *name) {
  printf("%%s %%d %%d\\n", name, int(Kind::end), int(Kind::local));
  for (int k = 0; k < Kind::states; ++k)
    for (int c = 0; c < Kind::counts[k]; ++c) {
      Choice choice = Kind::choices[k][c];
      printf("- %%d %%s %%d %%s %%s\\n", k, FROM[int(choice.from)], choice.state, COST[int(choice.cost)],
             COST[int(Kind::common[k])]);
    }
}
static_assert(int(From::diagonal) == 1 && int(From::left) == 2 && int(From::up) == 3);
static_assert(int(Cost::match) == 1 && int(Cost::open) == 2 && int(Cost::extend) == 3 && int(Cost::turn) == 4);
static_assert(int(Cost::back) == 5 && int(End::anywhere) == 0 && int(End::after_match) == 1 && int(End::last) == 2);
int main() { %s }
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, list[list[str]]]:
    """For each struct of the header its lines."""
    if cpp.why_absent() is not None:
        pytest.skip(f"no native kernels: {cpp.why_absent()}")
    folder = tmp_path_factory.mktemp("tables")
    calls = " ".join(f'print<{name}>("{name}");' for name in dict.fromkeys(STRUCTS.values()))
    (folder / "tables.cpp").write_text(PROGRAM % calls)
    header = cpp.target("float32").sources[0].parent
    command = ["c++", "-std=c++17", f"-I{header}", str(folder / "tables.cpp"), "-o", str(folder / "tables")]
    subprocess.run(command, check=True)
    found: dict[str, list[list[str]]] = {}
    for line in subprocess.run([folder / "tables"], check=True, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("- "):
            found[list(found)[-1]].append(line.split()[1:])
        else:
            found[line.split()[0]] = [line.split()[1:]]
    return found


@EVERY
def test_the_tables_in_c_are_the_table(problem, options, tables):
    recurrence, costs = recurrence_of(problem, options), names_of_costs(problem, options)
    (end, local), *lines = tables[STRUCTS[problem, options.get("end")]]
    states: list[set[Row]] = [set() for _ in recurrence.states]
    for k, neighbour, state, cost, common in lines:
        if cost == "back" and options["restrict_turns"]:
            continue  # which solve.h makes of no worth
        names = [{SIMILARITY} if name == "match" else costs[name] for name in (cost, common) if name != "none"]
        origin = None if neighbour == "start" else (neighbour, int(state))
        states[int(k)].add((origin, frozenset().union(*names)))
    assert states == rows_of(recurrence)
    assert (ANYWHERE, ON_A_LATER_MATCH, IN_THE_LAST_CELL)[int(end)] == recurrence.where
    assert bool(int(local)) == (recurrence.border_terms is None)
    if recurrence.where == ON_A_LATER_MATCH:  # an alignment ends in the choices from the diagonal, which come first
        count = len(recurrence.ends)
        assert {state for k, neighbour, state, *_ in lines[:count] if (k, neighbour) == ("0", "diagonal")} == {
            str(end.state) for end in recurrence.ends
        }
    else:
        assert [(end.neighbour, end.state) for end in recurrence.ends] == [("cell", 0)]


# Triton: its functions are called with symbols


class Symbols(frozenset):
    """A sum of symbols."""

    def __add__(self, other: Any) -> "Symbols":
        assert not self & other, "a symbol is added twice"
        return Symbols(self | other)


@pytest.fixture
def cells(monkeypatch):
    pytest.importorskip("triton")
    from shared.kernels.triton import cells

    monkeypatch.setattr(cells, "plus", lambda a, b, product: a + b)
    monkeypatch.setattr(cells, "tl", SimpleNamespace(zeros_like=lambda _: Symbols()))
    return cells


def choices_of_triton(cells: Any, problem: str, options: dict[str, Any]) -> list[list[Row]]:
    """For each state its choices, in Triton's order."""
    recurrence, costs = recurrence_of(problem, options), names_of_costs(problem, options)
    near = [tuple(Symbols([(name, k)]) for k in range(len(recurrence.states))) for name in ("diagonal", "left", "up")]
    given = tuple(Symbols(costs.get(name, ())) for name in ("open", "extend", "turn"))
    restricted = options.get("restrict_turns", False)
    kind = cpp.call_of(problem, options).kind
    states = cells.choices.fn(kind, restricted, True, Symbols([SIMILARITY]), *near, given)
    return [[row_of(choice) for choice in choices] for choices in states]


def row_of(choice: Symbols) -> Row:
    origins = [symbol for symbol in choice if not isinstance(symbol, str)]
    assert len(origins) <= 1
    return origins[0] if origins else None, frozenset(symbol for symbol in choice if isinstance(symbol, str))


@EVERY
def test_the_choices_in_triton_are_the_table(problem, options, cells):
    states = choices_of_triton(cells, problem, options)
    assert [len(set(choices)) for choices in states] == [len(choices) for choices in states]
    assert [set(choices) for choices in states] == rows_of(recurrence_of(problem, options))


@EVERY
def test_triton_hands_derivatives_on_to_where_the_choices_come_from(problem, options, cells):
    states, costs = choices_of_triton(cells, problem, options), names_of_costs(problem, options)
    parts = tuple(tuple(Symbols([(k, c)]) for c in range(len(choices))) for k, choices in enumerate(states))
    call = cpp.call_of(problem, options)
    *neighbours, matched, to_costs = cells.to_neighbours.fn(call.kind, options.get("restrict_turns", False), parts)
    rows = {(k, c): row for k, choices in enumerate(states) for c, row in enumerate(choices)}
    for name, handed in zip(("diagonal", "left", "up"), neighbours, strict=True):
        for state in range(len(states)):
            assert handed[state] == {part for part, (origin, _) in rows.items() if origin == (name, state)}
    assert matched == {part for part, (_, terms) in rows.items() if SIMILARITY in terms}
    # what is handed to a cost is handed to the parameter that it is
    names = [costs[name] for name in ("open", "extend", "turn")[: len(to_costs)]]
    for parameter in set().union(*names):
        own = [part for name, part in zip(names, to_costs, strict=True) if parameter in name]
        assert sum(own[1:], own[0]) == {part for part, (_, terms) in rows.items() if parameter in terms}
