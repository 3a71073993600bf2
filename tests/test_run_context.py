"""What a run asks of its workers: of a new one first to start its compiler, so that no case pays for that."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hand_made import case, record
from shared.bench.going import Going
from shared.bench.plan import Case, Settings
from shared.bench.workers import Reply, Unavailable


@dataclass
class OneWorker:
    """Stands for a worker: does at once what it is asked."""

    has_started_compiler: bool = False
    asked: list[str] = field(default_factory=list)

    def ask(self, do: str, *_: Any, **__: Any) -> Reply:
        self.asked.append(do)
        return Reply("ok", None, {"seconds": 0.5})


@dataclass
class OneTeam:
    """Stands for a team with one seat."""

    own: OneWorker = field(default_factory=OneWorker)
    starts: bool = True

    def worker(self, case: Case) -> OneWorker:
        if not self.starts:
            raise Unavailable("no memory", device_problem=False)
        return self.own


def going(team: OneTeam) -> Going:
    settings = Settings()
    return Going(settings, record(settings=settings), None, lambda: None, team, 0.0)  # pyright: ignore[reportArgumentType]


COMPILED, PLAIN = case("torch", "vmap"), case("torch", "fused", compiled=False)


def test_a_new_worker_starts_its_compiler_before_its_first_compiled_case_and_once():
    team = OneTeam()
    run = going(team)
    for asked in (PLAIN, COMPILED, COMPILED):
        run.ask_worker(asked, "cold", 1.0)
    assert team.own.asked == ["cold", "start_compiler", "cold", "cold"]
    team.own = OneWorker()  # the first one was killed
    run.ask_worker(COMPILED, "cold", 1.0)
    assert team.own.asked == ["start_compiler", "cold"]


def test_a_compiler_that_was_started_for_all_is_not_started_again():
    team = OneTeam()
    run = going(team)
    assert run.start_compilers([COMPILED, PLAIN]) == {"torch": 0.5}
    run.ask_worker(COMPILED, "cold", 1.0)
    assert team.own.asked == ["start_compiler", "cold"]


@pytest.mark.parametrize("do", ["cold", "retrace"])
def test_a_worker_that_cannot_start_fails_the_case_and_nothing_else(do: str):
    run = going(OneTeam(starts=False))
    assert run.start_compilers([COMPILED]) == {}
    reply = run.ask_worker(COMPILED, do, 1.0)
    assert (reply.status, reply.reason) == ("failed", "the worker could not be started again: no memory")
