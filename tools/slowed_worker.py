"""A worker whose timed calls are slowed down: the injected slowdown of the protocol's power test.

python -m tools.slowed_worker FRACTION FRAMEWORK DEVICE THREADS MEMORY FOLDER CONNECTION
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from shared.bench.worker import main


def slowed(call: Callable[[], Any], fraction: float) -> Callable[[], Any]:
    """A call that takes this fraction longer, by busy waiting."""

    def longer() -> Any:
        start = time.perf_counter()
        result = call()
        end = start + (time.perf_counter() - start) * (1 + fraction)
        while time.perf_counter() < end:
            pass
        return result

    return longer


if __name__ == "__main__":
    fraction = float(sys.argv.pop(1))
    main.limit_cores(int(sys.argv[3]))
    from shared.bench.worker import case_runner  # only when cores are set: NumPy starts threads on import

    timed = case_runner.timed
    case_runner.timed = lambda call: timed(slowed(call, fraction))
    main.main()
