"""What does a call cost between other work, as in a step of training?

Every case is timed in a loop of calls, as everywhere else, and right after a product of two matrices by the same
framework: that leaves other data and code in the caches, and the framework's threads where it leaves them.
"""

from collections.abc import Mapping

from shared.bench.cases import BETWEEN
from shared.bench.questions.question import WorkerStart
from shared.bench.questions.two_ways import TwoWays, Wording

LOOP = "in a loop"


class Between(TwoWays):
    """Every case in a loop, and between matrix products."""

    name = "between"
    asks = "what does a call cost between other work, as in a step of training"
    default_input = "random"
    only_on_cpus = "on others every call finds its caches flushed"
    labels: Mapping[str, WorkerStart] = {LOOP: WorkerStart(), BETWEEN: WorkerStart()}
    usual, other, is_gain = LOOP, BETWEEN, False
    wording = Wording(
        "In a loop, and between other work",
        ("in a loop", "between", "longer"),
        "Between: right after a product of two matrices of 1024 x 1024 by the same framework; longer: that time over "
        "the one in a loop of calls",
        "between matrix products a call takes, against a loop of calls",
    )


QUESTION = Between()
