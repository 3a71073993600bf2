"""`compare.py --device cuda` from end to end on a machine without a GPU: the workers are told that the CPU is one.

What the frameworks do on a GPU is not shown here (see test_cuda.py), but what the comparison asks of them is: the two
inputs, the batch that is made smaller until it fits, the memory that each may take, caches flushed before every timed
call, device times, ceilings, and a case that has too little memory.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import plant, run_compare, stored

# 32 pairs are asked for, 4 of them different; more than 16 do not fit, nor PyTorch's wavefront marginals of 16
PRETENDED = """
def note(what):
    import json

    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(what) + "\\n")


class Full(Exception):
    pass


def pretend(backend):
    name, real = backend.NAME, {key: getattr(backend, key) for key in dir(backend)}
    backend.device_problem = lambda device: None
    backend.to_device = lambda array, device: real["to_device"](array, "cpu")
    backend.environment = lambda device: real["environment"]("cpu") | {"gpu": "Pretended 9000"}
    backend.peak_bytes = lambda function, arguments, parameters, device: 4096
    backend.limit_memory = lambda device, share: note([name, "share", share])
    backend.flush = lambda device: note([name, "flush"])
    backend.is_out_of_memory = lambda error: isinstance(error, Full)
    backend.start_compiler = lambda device: None

    def device_seconds(launch, device):
        start = time.perf_counter()
        backend.wait(launch())
        return (time.perf_counter() - start) / 2

    def repeated(value, times):
        if times > 4:
            raise Full
        return real["repeated"](value, times)

    def call_of(problem, variant, pass_name, *others, **more):
        call = real["call_of"](problem, variant, pass_name, *others, **more)

        def called(similarity, *arguments, **parameters):
            if (name, variant, pass_name, len(similarity)) == ("torch", "wavefront", "marginals", 16):
                raise Full("too little")
            note([name, "call", variant, pass_name, len(similarity)])
            return call(similarity, *arguments, **parameters)

        return called

    backend.exponentials = lambda value, rounds: value
    backend.device_seconds, backend.repeated, backend.call_of = device_seconds, repeated, call_of


def smaller(inputs):
    inputs.GPU_SIZE, inputs.GPU_BATCH = (6, 5), 3
    inputs.CHIP_SIZE, inputs.CHIP_BATCH, inputs.CHIP_DISTINCT = (9, 8), 32, 4


def fewer(serve):
    serve._EXPONENTIALS_OF, serve._DEVICE_STREAM_BYTES = 2**10, 2**16


PATCHES = {
    "jax_impl.backend": pretend,
    "torch_impl.backend": pretend,
    "shared.problems.alignment_inputs": smaller,
    "shared.bench.serve": fewer,
}
"""


class Run:
    """What came of a run, and what was asked of the frameworks."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        plant(folder, PRETENDED)
        path, self._notes = folder / "record.json", folder / "notes"
        given = ("--device", "cuda", "--threads", "1", "--workers", "1", "--rounds", "2", *arguments)
        done = run_compare(*given, "--json", str(path), folders=(folder,), more={"NOTES": str(self._notes)})
        self.out, self.err, self.code = done.stdout, done.stderr, done.returncode
        self.json = stored(path)

    def notes(self, *start: Any) -> list[list[Any]]:
        found = [json.loads(line) for line in self._notes.read_text().splitlines()]
        return [note for note in found if note[: len(start)] == list(start)]

    def cases(self, **fields: Any) -> list[dict[str, Any]]:
        return [case for case in self.json["cases"] if fields.items() <= case.items()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("gpu"), "--variant", "wavefront,fused")


def test_it_ends_well_though_one_case_has_too_little_memory(run):
    assert run.code == 0, run.err
    (lost,) = [case for case in run.json["cases"] if case["status"] != "ok"]
    assert (lost["framework"], lost["variant"], lost["pass_name"], lost["input"]) == (
        "torch", "wavefront", "marginals", "9x8",
    )  # fmt: skip
    assert (lost["status"], lost["reason"]) == ("limit", "out of memory")
    assert re.search(r"marginals +PyTorch +wavefront +no +out of memory *\n", run.out)
    assert "left out: PyTorch wavefront was not done (out of memory)." in run.out


def test_the_two_inputs_and_the_largest_batch_that_fits(run):
    inputs = run.json["inputs"]
    assert {name: facts["shape"] for name, facts in inputs.items()} == {"6x5": [3, 6, 5], "9x8": [16, 9, 8]}
    assert {name: facts["pairs"] for name, facts in inputs.items()} == {"6x5": 3, "9x8": 16}
    assert inputs["9x8"]["work"] == 16 * 72
    assert inputs["9x8"]["text"] == "random similarity, seed 0, 4 pairs of 9 x 8, each 4 times"
    assert "9x8: 16 pairs are the largest batch that fits; 32 were asked for" in run.out
    batches = {note[4] for note in run.notes("jax", "call") + run.notes("torch", "call")}
    # 1: pairs for the gate's float64 run; the rest, whole inputs and those of a new shape
    assert {3, 16} <= batches <= {1, 2, 3, 4, 16}


def test_the_fastest_variants_have_their_first_calls_first(run):
    for framework in ("jax", "torch"):
        called = dict.fromkeys(note[2] for note in run.notes(framework, "call") if note[4] == 3)  # pairs of 6x5
        assert list(called) == ["fused", "wavefront"]


def test_what_is_repeated_is_judged_in_all_its_repeats(run):
    gates = {case["gate"]["pairs"] for case in run.cases(input="9x8", status="ok")}
    assert gates == {16}
    assert "on 3 of 3 and 16 of 16 pairs" in run.out


def test_each_framework_has_its_share_of_the_memory(run):
    assert {note[2] for note in run.notes("jax", "share") + run.notes("torch", "share")} == {0.45}
    assert "each framework might take 45% of the accelerator's memory" in run.out


def test_caches_are_flushed_before_every_timed_call(run):
    for framework in ("jax", "torch"):
        own = run.cases(framework=framework, status="ok")
        timed = sum(len(block["seconds"]) for case in own for block in case["blocks"])
        assert len(run.notes(framework, "flush")) == timed + 2 * 3 * len(own)


def test_times_on_the_device_are_of_two_processes_and_stand_beside_those_of_the_wall(run):
    for case in run.cases(status="ok"):
        assert len(case["on_device"]) == 2 * 3
        assert all(seconds > 0 for seconds in case["on_device"])
    assert re.search(r"95% interval +device time +of the limit +GCUPS", run.out)
    row = next(line for line in run.out.splitlines() if re.match(r"score +JAX +fused", line))
    assert re.search(r"µs|ms", row) and re.search(r"\d\.\d%", row)
    assert "on the device itself: " in run.out
    assert "same code: both ran the same kernels;" in run.out


def test_ceilings_are_measured_and_told(run):
    environment = run.json["environment"]
    assert environment["bandwidth_bytes_per_second"] > 0 and environment["exponentials_per_second"] > 0
    assert re.search(r"measured ceilings: copying \S+ GB/s, \S+ billion exponentials per second; the limit is", run.out)
    assert "Pretended 9000" in run.out


def test_a_run_that_is_gone_on_with_keeps_its_batch(run, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(run.json | {"finished": None}))
    folder = plant(tmp_path, PRETENDED)
    more = {"NOTES": str(tmp_path / "notes")}
    done = run_compare("--resume", str(path), folders=(folder,), more=more)
    assert done.returncode == 0, done.stderr
    again = stored(path)
    assert again["inputs"] == run.json["inputs"]
    assert "do 32 pairs of 9x8 fit?" not in done.stderr
    assert "9x8: 16 pairs are the largest batch that fits; 32 were asked for" in again["notes"]


def test_the_default_variants_of_a_gpu_have_the_graph_and_say_who_lacks_it(tmp_path):
    one = Run(tmp_path, "--framework", "jax", "--pass", "score", "--variant", "cuda_graph,fused", "--batch", "3")
    assert "absent: JAX cuda_graph score: JAX captures no graph by hand" in one.out
    assert one.json["inputs"]["batch"]["shape"] == [3, 100, 150]
