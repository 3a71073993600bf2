"""Launches that XLA runs, as they reach the driver."""

import threading
from collections.abc import Iterator

import fake_gpu  # first: it is the driver that is found
import pytest
from compiled_kernels import parameters
from fake_gpu import (
    ADDRESS,
    BUFFER,
    FAKE,
    GPU,
    LAUNCHER,
    NARROW,
    WIDE,
    Compiler,
    Gpu,
    asked,
    jax_calls,
    launch,
    launches,
)

from shared.kernels import cpp
from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.machine_code import machine_code
from shared.kernels.triton.programs import Chunk, Layout, gradients_program

RELAXED = 2
_CHUNK = Chunk(32, 1, 8)
# of a warp; its kernels are compiled in a quarter of the time that those of larger chunks take
LAYOUT = Layout(32, 1, _CHUNK, _CHUNK, _CHUNK)


@pytest.fixture(autouse=True)
def compiler() -> Iterator[Compiler]:
    own = Compiler()
    fake_gpu.start()
    fake_gpu.compile_with(own)
    yield own
    assert (FAKE.fake_contexts(), FAKE.fake_capture_mode()) == (0, 0), "a call has to leave a thread as it was"


@pytest.mark.parametrize(("problem", "by_position"), [("free_gap", ()), ("smith_waterman_affine", ("gap_extend",))])
def test_a_program_reaches_the_gpu_as_its_kernels_take_it(problem: str, by_position: tuple[str, ...]):
    """By Triton's machine code, from the program to the driver; matrices so large that strides need 64 bits."""
    fake_gpu.compile_with(jax_calls._find)
    pairs, rows, cols = shape = 3, 70_000, 70_000
    call, strides = cpp.call_of(problem, {}, by_position), (rows * cols, cols)
    program = gradients_program(call, "float32", shape, strides, True, LAYOUT, with_values=bool(by_position))
    given = "similarity", "lengths", "values", *by_position
    buffers = {name: ADDRESS + 0x1000 * i for i, name in enumerate((*given, *program.results, *program.scratch))}
    compiled = [machine_code(each.kernel, GPU.capability) for each in program.launches]
    for each in compiled:
        FAKE.fake_kernel(each.metadata.name.encode(), bytes(parameters(each)), len(parameters(each)))

    kernels, numbers = jax_calls.attributes(program, given)
    whole = kernels, numbers, [(address, 64) for address in buffers.values()], len(buffers) - len(given)
    assert fake_gpu.call(*whole) is None
    every = asked()

    meant = buffers | {"pairs": pairs, "rows": rows, "cols": cols}
    meant |= {"pair_stride": rows * cols, "row_stride": cols, "t_pair_stride": rows * cols, "t_row_stride": cols}
    # what is not there has something else's place
    instead = {"t_similarity": "similarity", "t_values": "values", "first_plane": "d_similarity"}
    meant |= {name: buffers[other] for name, other in instead.items()}
    exact = ["forward_kernel", "backward_kernel"]
    odds = [] if by_position else ["odds_forward_kernel", "odds_backward_kernel"]
    assert [own.name for own in launches(every)] == [*odds, *exact]
    constants_of = {each.kernel.name: dict(each.kernel.constants) for each in program.launches}
    # pairs that the first two have flagged are left to the last two
    of_flags = [buffers.get("flags") in own.parameters for own in launches(every)]
    assert of_flags == ([False] * 2 if by_position else [True] * 4)
    for own, code in zip(launches(every), compiled, strict=True):
        names = [name for name in KERNELS[own.name].arg_names if name not in constants_of[own.name]]
        assert own.parameters == [meant[name] for name in names] + [0] * (len(parameters(code)) - len(names))
        assert (own.grid, own.block, own.stream) == ((pairs, 1, 1), (32, 1, 1), GPU.stream)
        assert own.shared == code.metadata.shared > 0
    loaded = fake_gpu.by_name(every, "cuModuleLoadData")
    for (_, address), code in zip(loaded, compiled, strict=True):
        assert fake_gpu.bytes_at(address, len(code.asm["cubin"])) == code.asm["cubin"]

    # another GPU of the same kind gets the same machine code, which is not compiled again
    misses = machine_code.cache_info().misses
    assert fake_gpu.call(*whole, stream=Gpu(2, 90).stream) is None
    again = asked()
    assert [line[1] for line in fake_gpu.by_name(again, "cuModuleLoadData")] == [line[1] for line in loaded]
    assert machine_code.cache_info().misses == misses and len(launches(again)) == len(compiled)


def test_numbers_keep_their_bits(compiler: Compiler):
    compiler.facts = {"sizes": bytes([4, 8, 4, 8, 8])}
    numbers = [1, 4, NARROW, -5, WIDE, -5, NARROW, 2**31 - 1, WIDE, 2**40 + 3]
    assert fake_gpu.call("one\n", numbers, [], 0) is None
    (own,) = launches(asked())
    assert own.parameters == [2**32 - 5, 2**64 - 5, 2**31 - 1, 2**40 + 3, 0]


def test_arguments_come_before_results_and_an_empty_buffer_may_be_nowhere():
    assert fake_gpu.call("one\n", [1, 3, BUFFER, 2, BUFFER, 0, BUFFER, 1], [(ADDRESS, 8), (0, 0), (8, 8)], 1) is None
    (own,) = launches(asked())
    assert own.parameters == [8, ADDRESS, 0]


@pytest.mark.parametrize("scratch", [0, 1, 3])
def test_a_kernel_gets_as_many_null_pointers_as_it_has_parameters_left(compiler: Compiler, scratch: int):
    compiler.facts = {"sizes": bytes([8, 8, *[8] * scratch])}
    assert launch() is None
    (own,) = launches(asked())
    assert own.parameters == [ADDRESS, 5, *[0] * scratch]


def test_a_kernel_is_loaded_once_in_a_context_and_launched_each_time(compiler: Compiler):
    assert [launch(), launch(), launch(stream=GPU.other_stream)] == [None] * 3
    every = asked()
    assert compiler.asked == [("one", 90)] and fake_gpu.loaded_codes(every) == ["one for 90"]
    assert [own.stream for own in launches(every)] == [GPU.stream, GPU.stream, GPU.other_stream]
    assert len({own.function for own in launches(every)}) == 1


def test_each_gpu_loads_its_own_machine_code(compiler: Compiler):
    gpus = [GPU, Gpu(1, 86), Gpu(2, 90)]
    for gpu in gpus * 2:
        assert launch(stream=gpu.stream) is None
    every = asked()
    assert compiler.asked == [("one", 90), ("one", 86), ("one", 90)]
    assert fake_gpu.loaded_codes(every) == ["one for 90", "one for 86", "one for 90"]
    assert [line[1] for line in fake_gpu.by_name(every, "cuCtxPushCurrent_v2")] == [gpu.context for gpu in gpus * 2]
    functions = [own.function for own in launches(every)]
    assert len(set(functions)) == 3 and functions[:3] == functions[3:]


@pytest.mark.parametrize(("shared", "is_asked_for"), [(48 * 1024, False), (48 * 1024 + 1, True)])
def test_more_than_48_kib_of_shared_memory_is_asked_for(compiler: Compiler, shared: int, is_asked_for: bool):
    compiler.facts = {"shared": shared, "threads": 128}
    assert launch() is None
    every = asked()
    assert [line[2:] for line in fake_gpu.by_name(every, "cuFuncSetAttribute")] == [[8, shared]] * is_asked_for
    (own,) = launches(every)
    assert (own.shared, own.block) == (shared, (128, 1, 1))


def test_an_empty_grid_is_not_launched(compiler: Compiler):
    assert launch(grid=0) is None
    assert not launches(asked()) and not compiler.asked


def test_forgotten_kernels_are_compiled_and_loaded_again(compiler: Compiler):
    assert launch() is None
    LAUNCHER.forget_kernels()
    assert launch() is None
    assert compiler.asked == [("one", 90)] * 2 and FAKE.fake_modules() == 2


def test_xla_may_record_launches_into_a_cuda_graph():
    traits = fake_gpu.FRAME.traits
    assert traits(LAUNCHER.xla_launch_on_gpu) == 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE
    assert traits(LAUNCHER.xla_launch_interpreted) == 0


def test_a_kernel_can_be_loaded_while_a_stream_is_captured():
    FAKE.fake_capture(1)
    assert launch() is None
    every = asked()
    names = fake_gpu.names(every)
    first, last = (i for i, name in enumerate(names) if name == "cuThreadExchangeStreamCaptureMode")
    assert every[first][1] == RELAXED and every[last][1] == 0
    assert first < names.index("cuModuleLoadData") < last < names.index("cuLaunchKernel")


def test_known_kernels_are_launched_and_all_forgotten_while_another_is_compiled(compiler: Compiler):
    assert launch("known") is None
    compiling, done = threading.Event(), threading.Event()

    def slowly(*arguments) -> int:
        compiling.set()
        assert done.wait(10)
        return compiler(*arguments)

    fake_gpu.compile_with(slowly)
    errors: list[str | None] = []
    other = threading.Thread(target=lambda: errors.append(launch("new")))
    other.start()
    assert compiling.wait(10)
    assert launch("known") is None
    LAUNCHER.forget_kernels()
    assert [own.name for own in launches(asked())] == ["known", "known"]
    done.set()
    other.join()
    assert errors == [None] and [own.name for own in launches(asked())] == ["new"]


def test_threads_that_want_the_same_kernel_compile_and_load_it_once(compiler: Compiler):
    together = threading.Barrier(4)
    errors: list[str | None] = []

    def run() -> None:
        together.wait()
        errors.append(launch())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = asked()
    assert errors == [None] * 4 and len(compiler.asked) == FAKE.fake_modules() == 1
    assert len({own.function for own in launches(every)}) == 1 and len(launches(every)) == 4
