"""What the processes of a launcher do that are not the first one, which alone reports: they follow it."""

import tempfile
from dataclasses import replace
from pathlib import Path

from shared.bench.cases import Case, Settings
from shared.bench.questions.processes_group import AGAIN, SILENT_SECONDS
from shared.bench.questions.processes_inputs import inputs_of, write_inputs
from shared.bench.questions.processes_launch import launch_of
from shared.bench.questions.processes_worker import command, follow_others
from shared.bench.report.console import print_error
from shared.bench.run.worker_handle import Unavailable, Worker


def is_follower(settings: Settings) -> bool:
    """Whether a launcher has started this process as another one than the first, which alone reports."""
    launch = launch_of(settings) if settings.question == "processes" else None
    return launch is not None and launch.index > 0


def follow(settings: Settings) -> int:
    """Do what process 0 says, in a fresh worker for each of its groups; returns the exit code."""
    launch = launch_of(settings)
    assert launch is not None, "is_follower comes first"
    case = Case(settings.frameworks[0], "", "", False, "", settings.problem, settings.device, settings.dtype)
    inputs = inputs_of(settings, [launch.count])
    with tempfile.TemporaryDirectory(prefix="compare-", ignore_cleanup_errors=True) as name:
        folder, number, last = Path(name), 0, AGAIN
        write_inputs(folder, settings, inputs, [launch.count])
        while last == AGAIN:
            place = launch.place(settings, f"group {number}")
            own = replace(settings, threads=launch.cores(settings))
            worker = Worker(
                place.framework, command(place), own, folder, lambda: None, memory_share=0.9, environment={}
            )
            try:
                worker.wait_until_ready()
                # its signs of life are steps, as if it compiled
                reply = worker.ask("call", case, limit=SILENT_SECONDS, function=follow_others)
            except Unavailable as error:
                print_error(f"{place.title(launch.index)}: {error}")
                return 1
            finally:
                worker.stop()
            if reply.status != "ok":
                why = f" was silent for {SILENT_SECONDS:g} s" if reply.status == "limit" else f": {reply.reason}"
                print_error(f"{place.title(launch.index)}{why}")
                return 1
            last, number = reply.details["last"], number + 1
    return 0
