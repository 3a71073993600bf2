"""Launches that XLA runs, as they reach the driver; and those that fail: what was wanted and why there is none."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import fake_gpu  # first: it is the driver that is found
import pytest
from compiled_kernels import parameters
from fake_gpu import (
    ADDRESS,
    BUFFER,
    DRIVER_FUNCTIONS,
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
from shared.kernels.triton.programs import Chunk, Kernel, Layout, gradients_program

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


# launches that fail


SHARED = 64 * 1024  # which has to be asked for
FAILED = {
    "cuStreamGetCtx": "tell a stream's context",
    "cuCtxPushCurrent_v2": "enter a context",
    "cuCtxPopCurrent_v2": "leave a context",
    "cuCtxGetDevice": "tell what the GPU is",
    "cuDeviceGetAttribute": "tell what the GPU is",
    "cuThreadExchangeStreamCaptureMode": "let one be loaded during a capture",
    "cuModuleLoadData": "load one",
    "cuModuleGetFunction": "find one in what it has loaded",
    "cuFuncSetAttribute": f"give one {SHARED} bytes of shared memory",
    "cuLaunchKernel": "launch one",
}
ONLY_AFTER_A_FAILURE = {"cuModuleUnload", "cuGetErrorString"}
STAYS_LOADED = {"cuLaunchKernel", "cuCtxPopCurrent_v2"}


def test_no_function_of_the_driver_is_left_out():
    assert set(FAILED) | ONLY_AFTER_A_FAILURE == set(DRIVER_FUNCTIONS)


@pytest.mark.parametrize("function", FAILED)
def test_a_failure_of_the_driver_is_said_and_leaves_nothing_behind(function: str, compiler: Compiler):
    compiler.facts = {"shared": SHARED}
    FAKE.fake_failure(function.encode(), 719)
    assert launch() == f"the CUDA driver could not {FAILED[function]}: reason 719"
    assert FAKE.fake_contexts() == (function == "cuCtxPopCurrent_v2") and FAKE.fake_capture_mode() == 0
    assert FAKE.fake_modules() == (function in STAYS_LOADED)
    FAKE.fake_failure(function.encode(), 0)
    asked()
    assert launch() is None and FAKE.fake_modules() == len(launches(asked())) == 1
    fake_gpu.start()


def test_an_error_without_a_reason_is_a_number():
    for function in ("cuLaunchKernel", "cuGetErrorString"):
        FAKE.fake_failure(function.encode(), 719)
    assert launch() == "the CUDA driver could not launch one: error 719"


def test_the_first_failure_is_the_one_that_is_said():
    for function in ("cuModuleGetFunction", "cuModuleUnload", "cuCtxPopCurrent_v2"):
        FAKE.fake_failure(function.encode(), 719)
    assert launch() == "the CUDA driver could not find one in what it has loaded: reason 719"
    fake_gpu.start()


def test_what_follows_a_failed_launch_is_not_launched():
    numbers = [1, 1, BUFFER, 0, 1, 1, BUFFER, 0]
    FAKE.fake_failure(b"cuLaunchKernel", 719)
    assert fake_gpu.call("one\ntwo\n", numbers, [(ADDRESS, 8)], 0)
    assert [own.name for own in launches(asked())] == ["one"]


def test_why_a_kernel_cannot_be_compiled_is_said_each_time():
    fake_gpu.compile_with(jax_calls._find)
    kernel = json.dumps(Kernel("sideways_kernel", "float32", (), 1))
    for _ in range(2):
        assert launch(kernel) == "Triton could not compile a kernel: KeyError: 'sideways_kernel'"
    assert "cuModuleLoadData" not in fake_gpu.names(asked()) and FAKE.fake_contexts() == 0


def test_a_compiler_that_gives_nothing_is_an_error(compiler: Compiler):
    compiler.facts = {"code": None}
    assert launch() == "there is no compiler for the kernel one"
    LAUNCHER.use_functions(jax_calls._Find(), jax_calls._Interpret())
    assert launch() == "there is no compiler for the kernel one"


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"scratch": 128}, "one needs 128 bytes of scratch memory; kernels are launched without any"),
        ({"blocks": 2}, "one needs clusters of 2 blocks; kernels are launched without any"),
    ],
)
def test_kernels_that_need_what_no_launch_has_are_refused(compiler: Compiler, facts: dict[str, int], error: str):
    compiler.facts = facts
    assert launch() == error
    assert "cuModuleLoadData" not in fake_gpu.names(asked()) and FAKE.fake_contexts() == 0


@pytest.mark.parametrize(("sizes", "named"), [([8], "8"), ([8, 4], "8 4"), ([8, 8, 4], "8 8 4"), ([], "")])
def test_a_launch_that_does_not_fit_the_kernels_parameters_is_refused(compiler: Compiler, sizes: list[int], named: str):
    compiler.facts = {"sizes": bytes(sizes)}
    error = launch()
    assert error and f"one has parameters of {named}".strip() in error and error.endswith("the launch gives 8 8")
    assert not launches(asked())


ONE = [1, 1, BUFFER, 0]
MALFORMED = {
    "a kernel without a launch": ("one\n", []),
    "a launch without a kernel": ("", ONE),
    "more launches than kernels": ("one\n", [*ONE, *ONE]),
    "more kernels than launches": ("one\none\n", ONE),
    "a line without an end": ("one", ONE),
    "fewer arguments than counted": ("one\n", [1, 2, BUFFER, 0]),
    "half an argument": ("one\n", [1, 1, BUFFER]),
    "fewer than no arguments": ("one\n", [1, -1]),
    "a count whose double is no number": ("one\n", [1, 2**63 - 1, BUFFER, 0]),
    "an unknown kind": ("one\n", [1, 1, 3, 0]),
    "a number of 33 bits as one of 32": ("one\n", [1, 1, NARROW, 2**31]),
    "a grid below 0": ("one\n", [-1, 1, BUFFER, 0]),
    "a grid beyond what a GPU has": ("one\n", [2**31, 1, BUFFER, 0]),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_launches_are_refused(what: str):
    kernels, numbers = MALFORMED[what]
    assert fake_gpu.call(kernels, numbers, [(ADDRESS, 8)], 0) == "these are no launches"
    assert not asked()


@pytest.mark.parametrize("place", [1, -1, 2**62])
def test_a_buffer_that_is_not_there_is_refused(place: int):
    assert fake_gpu.call("one\n", [1, 1, BUFFER, place], [(ADDRESS, 8)], 0) == "Index out of range"
    assert not asked()


IN_A_PROCESS_OF_ITS_OWN = """
import ctypes, sys
driver, launcher, frame = sys.argv[1:]
if driver:
    ctypes.CDLL(driver)
room, none = ctypes.create_string_buffer(999), ctypes.c_int64(0)
handler = ctypes.CDLL(launcher).xla_launch_on_gpu
code = ctypes.CDLL(frame).call(handler, None, b"", None, none, None, None, none, none, room, ctypes.c_int64(999))
print(code, room.value.decode())
"""


def _with_driver(driver: str) -> str:
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN, driver, LAUNCHER._name, fake_gpu.FRAME._name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("absent", [DRIVER_FUNCTIONS[0], DRIVER_FUNCTIONS[-1], None])
def test_a_function_that_the_driver_lacks_is_named(absent: str | None):
    source = fake_gpu.FOLDER / f"without_{absent}.c"
    source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in DRIVER_FUNCTIONS if name != absent))
    said = _with_driver(fake_gpu.built(source, "-x", "c", fake_gpu.AS_THE_DRIVER))
    assert said == (f"13 the CUDA driver has no {absent}" if absent else "0")


def test_a_machine_without_a_driver_is_said_to_have_none():
    said = _with_driver("")
    if said == "0":
        pytest.skip("this machine has a driver")
    assert said.startswith("13 there is no CUDA driver: libcuda.so.1: ")
