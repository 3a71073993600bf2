"""What does a call cost between other work, as in a step of training?

Every case is timed in a loop of calls, as everywhere else, and right after a product of two matrices by the same
framework: that leaves other data and code in the caches, and the framework's threads in another state.
"""

from collections.abc import Mapping

from shared.bench.cases import BETWEEN
from shared.bench.questions.axis_question import AxisQuestion
from shared.bench.run.plan import WorkerStart

LOOP = "in a loop"


class Between(AxisQuestion):
    """Every case in a loop, and between matrix products."""

    name = "between"
    asks = "what does a call cost between other work, as in a step of training"
    axis, change, is_gain = "calls", "longer", False
    below = (
        "Between: right after a product of two matrices of 1024 x 1024 by the same framework; longer: that time over "
        "the one in a loop of calls, and the 95% interval.",
    )
    default_input = "random"
    only_on_cpus = "on other devices caches are flushed before every call"
    labels: Mapping[str, WorkerStart] = {LOOP: WorkerStart(), BETWEEN: WorkerStart()}


QUESTION = Between()
