"""Launches that XLA runs, as they reach the driver; and those that fail: what was wanted and why there is none."""

import ctypes
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fake_gpu  # first: it is the driver that is found
import pytest
from compiled_kernels import parameters
from fake_gpu import ADDRESS, BUFFER, FAKE, GPU, GPUS, LAUNCHER, NARROW, WIDE, Asked, Compiler, jax_calls, launch

from shared.kernels import cpp
from shared.kernels.triton.kernels import KERNELS
from shared.kernels.triton.machine_code import machine_code
from shared.kernels.triton.programs import Chunk, Kernel, Layout, gradients_program

_CHUNK = Chunk(32, 1, 8)
# of a warp; its kernels are compiled in a quarter of the time that those of larger chunks take
LAYOUT = Layout(32, 1, _CHUNK, _CHUNK, _CHUNK)


@pytest.fixture(autouse=True)
def compiler() -> Iterator[Compiler]:
    built = Compiler()
    fake_gpu.start()
    fake_gpu.compile_with(built)
    yield built
    assert (FAKE.fake_contexts(), FAKE.fake_capture_mode()) == (0, 0), "a call has to leave a thread as it was"


@pytest.mark.parametrize(
    ("problem", "by_position"),
    [pytest.param("free_gap", (), marks=pytest.mark.slow), ("smith_waterman_affine", ("gap_extend",))],
)
def test_a_program_reaches_the_gpu_as_its_kernels_take_it(problem: str, by_position: tuple[str, ...]):
    """The way from program to driver, with Triton's machine code; matrices so large that strides need 64 bits."""
    fake_gpu.compile_with(jax_calls._find)
    pairs, rows, cols = shape = 3, 70_000, 70_000
    call, strides = cpp.call_of(problem, {}, by_position), (rows * cols, cols)
    program = gradients_program(call, "float32", shape, strides, True, LAYOUT, with_values=bool(by_position))
    args = "similarity", "lengths", "values", *by_position
    buffers = {name: ADDRESS + 0x1000 * i for i, name in enumerate((*args, *program.results, *program.scratch))}
    compiled = [machine_code(launch.kernel, GPU.capability) for launch in program.launches]
    for one in compiled:
        FAKE.fake_kernel(one.metadata.name.encode(), bytes(parameters(one)), len(parameters(one)))

    kernels, numbers = jax_calls.attributes(program, args)
    whole = kernels, numbers, [(address, 64) for address in buffers.values()], len(buffers) - len(args)
    assert fake_gpu.call(*whole) is None
    driver = Asked()

    meant = buffers | {"pairs": pairs, "rows": rows, "cols": cols}
    meant |= {"pair_stride": rows * cols, "row_stride": cols, "t_pair_stride": rows * cols, "t_row_stride": cols}
    # what is not there has something else's place
    instead = {"t_similarity": "similarity", "t_values": "values", "first_plane": "d_similarity"}
    meant |= {name: buffers[other] for name, other in instead.items()}
    for launched, one, code in zip(driver.launches, program.launches, compiled, strict=True):
        assert launched.name == one.kernel.name
        names = [name for name in KERNELS[launched.name].arg_names if name not in dict(one.kernel.constants)]
        assert launched.parameters == [meant[name] for name in names] + [0] * (len(parameters(code)) - len(names))
        assert (launched.grid, launched.block, launched.stream) == ([pairs, 1, 1], [32, 1, 1], GPU.stream)
        assert launched.shared == code.metadata.shared > 0
    # pairs that the first two have flagged are left to the last two
    of_flags = [buffers.get("flags") in launched.parameters for launched in driver.launches]
    assert of_flags == ([False] * 2 if by_position else [True] * 4)
    loaded = driver.of("cuModuleLoadData")
    for (address,), code in zip(loaded, compiled, strict=True):
        assert ctypes.string_at(address, len(code.asm["cubin"])) == code.asm["cubin"]


def test_arguments_keep_their_order_and_bits(compiler: Compiler):
    """Buffers of arguments come before those of results; the pointers at the end, which are Triton's own, are null."""
    compiler.facts = {"sizes": bytes([4, 8, 4, *[8] * 6]), "shared": 48 * 1024}
    numbers = [1, 7, NARROW, -5, WIDE, -5, NARROW, 2**31 - 1, WIDE, 2**40 + 3, BUFFER, 2, BUFFER, 0, BUFFER, 1]
    assert fake_gpu.call("one\n", numbers, [(ADDRESS, 8), (0, 0), (8, 8)], 1) is None
    driver = Asked()
    (launched,) = driver.launches
    assert launched.shared == 48 * 1024 and not driver.of("cuFuncSetAttribute")
    assert launched.parameters == [2**32 - 5, 2**64 - 5, 2**31 - 1, 2**40 + 3, 8, ADDRESS, 0, 0, 0]
    assert launch(grid=0) is None and not Asked().launches


def test_a_kernel_is_loaded_once_on_each_gpu_and_launched_each_time(compiler: Compiler):
    streams = [gpu.stream + number for number in (0, 1) for gpu in GPUS]
    assert [launch(stream=stream) for stream in streams] == [None] * 6
    driver = Asked()
    assert compiler.asked == [("one", 90), ("one", 86), ("one", 90)]
    assert driver.loaded == ["one for 90", "one for 86", "one for 90"]
    assert driver.of("cuCtxPushCurrent_v2") == [[gpu.context] for gpu in GPUS] * 2
    assert [launched.stream for launched in driver.launches] == streams
    functions = [launched.function for launched in driver.launches]
    assert len(set(functions)) == 3 and functions[:3] == functions[3:]
    LAUNCHER.forget_kernels()
    assert launch() is None and compiler.asked[3:] == [("one", 90)] and FAKE.fake_modules() == 4


def test_xla_may_record_launches_into_a_cuda_graph():
    traits = fake_gpu.FRAME.traits
    assert traits(LAUNCHER.xla_launch_on_gpu) == 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE
    assert traits(LAUNCHER.xla_launch_interpreted) == 0


def test_a_kernel_can_be_loaded_while_a_stream_is_captured():
    FAKE.fake_capture(1)
    assert launch() is None
    driver = Asked()
    names = [name for name, *_ in driver]
    first, last = (i for i, name in enumerate(names) if name == "cuThreadExchangeStreamCaptureMode")
    # relaxed, and back
    assert driver[first][1] == 2 and driver[last][1] == 0
    assert first < names.index("cuModuleLoadData") < last < names.index("cuLaunchKernel")


def test_known_kernels_are_launched_and_all_forgotten_while_threads_compile_one_once(compiler: Compiler):
    assert launch("known") is None
    compiling, done = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> int:
        compiling.set()
        assert done.wait(10)
        return compiler(*arguments)

    fake_gpu.compile_with(slowly)
    with ThreadPoolExecutor() as pool:
        new = [pool.submit(launch, "new") for _ in range(3)]
        assert compiling.wait(10)
        assert launch("known") is None
        LAUNCHER.forget_kernels()
        assert [launched.name for launched in Asked().launches] == ["known", "known"]
        done.set()
        assert [thread.result() for thread in new] == [None] * 3
    launches = Asked().launches
    assert [one.name for one in launches] == ["new"] * 3 and len({one.function for one in launches}) == 1
    assert [kernel for kernel, _ in compiler.asked] == ["known", "new"] and FAKE.fake_modules() == 2


SHARED = 48 * 1024 + 1  # which has to be asked for
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


def fail(*functions: str) -> None:
    for function in functions:
        FAKE.fake_failure(function.encode(), 719)


@pytest.mark.parametrize("function", FAILED)
def test_a_failure_of_the_driver_is_said_and_leaves_nothing_behind(function: str, compiler: Compiler):
    compiler.facts = {"shared": SHARED, "threads": 128}
    fail(function)
    assert launch() == f"the CUDA driver could not {FAILED[function]}: reason 719"
    assert FAKE.fake_contexts() == (function == "cuCtxPopCurrent_v2") and FAKE.fake_capture_mode() == 0
    assert FAKE.fake_modules() == (function in ("cuLaunchKernel", "cuCtxPopCurrent_v2"))
    FAKE.fake_failure(function.encode(), 0)
    Asked()
    assert launch() is None and FAKE.fake_modules() == 1
    (launched,) = Asked().launches
    assert (launched.shared, launched.block) == (SHARED, [128, 1, 1])
    fake_gpu.start()


def test_the_first_failure_is_said_by_number_if_need_be_and_ends_the_launches():
    fail("cuModuleGetFunction", "cuModuleUnload", "cuCtxPopCurrent_v2")
    assert launch() == "the CUDA driver could not find one in what it has loaded: reason 719"
    assert {*FAILED, "cuModuleUnload", "cuGetErrorString"} == set(fake_gpu.DRIVER_FUNCTIONS), "another may fail"
    fake_gpu.start()
    fail("cuLaunchKernel", "cuGetErrorString")
    error = fake_gpu.call("one\ntwo\n", 2 * [1, 1, BUFFER, 0], [(ADDRESS, 8)], 0)
    assert error == "the CUDA driver could not launch one: error 719"
    assert [launched.name for launched in Asked().launches] == ["one"]


def test_why_a_kernel_cannot_be_compiled_is_said_each_time():
    fake_gpu.compile_with(jax_calls._find)
    kernel = json.dumps(Kernel("sideways_kernel", "float32", (), 1))
    for _ in range(2):
        assert launch(kernel) == "Triton could not compile a kernel: KeyError: 'sideways_kernel'"
    LAUNCHER.use_functions(jax_calls._Find(), jax_calls._Interpret())
    assert launch() == "there is no compiler for the kernel one"
    assert not Asked().loaded


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"code": None}, "there is no compiler for the kernel one"),
        ({"scratch": 128}, "one needs 128 bytes of scratch memory; kernels are launched without any"),
        ({"blocks": 2}, "one needs clusters of 2 blocks; kernels are launched without any"),
        ({"sizes": bytes([8])}, "one has parameters of 8 bytes"),
        ({"sizes": bytes([8, 4])}, "one has parameters of 8 4 bytes"),
        ({"sizes": bytes([8, 8, 4])}, "one has parameters of 8 8 4 bytes"),
    ],
)
def test_kernels_that_a_launch_does_not_fit_are_refused(compiler: Compiler, facts: dict[str, Any], error: str):
    compiler.facts = facts
    assert (launch() or "").startswith(error)
    assert not Asked().launches


ONE, NO_LAUNCHES = [1, 1, BUFFER, 0], "these are no launches"


@pytest.mark.parametrize(
    ("kernels", "numbers", "error"),
    [
        ("one\n", [], NO_LAUNCHES),
        ("", ONE, NO_LAUNCHES),
        ("one\n", [*ONE, *ONE], NO_LAUNCHES),
        ("one", ONE, NO_LAUNCHES),  # a line without an end
        ("one\n", [1, 2, BUFFER, 0], NO_LAUNCHES),  # fewer arguments than counted
        ("one\n", [1, -1], NO_LAUNCHES),
        ("one\n", [1, 2**63 - 1, BUFFER, 0], NO_LAUNCHES),  # the count's double is no number
        ("one\n", [1, 1, 3, 0], NO_LAUNCHES),  # an unknown kind
        ("one\n", [1, 1, NARROW, 2**31], NO_LAUNCHES),
        ("one\n", [-1, 1, BUFFER, 0], NO_LAUNCHES),  # a grid below 0
        ("one\n", [2**31, 1, BUFFER, 0], NO_LAUNCHES),  # and beyond what a GPU has
        *(("one\n", [1, 1, BUFFER, place], "Index out of range") for place in (1, -1, 2**62)),
    ],
)
def test_malformed_launches_and_absent_buffers_are_refused(kernels: str, numbers: list[int], error: str):
    assert fake_gpu.call(kernels, numbers, [(ADDRESS, 8)], 0) == error
    assert not Asked()


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


def test_a_driver_that_is_absent_or_lacks_a_function_is_said():
    libraries = {"": "there is no CUDA driver: libcuda.so.1: "}
    for absent in (fake_gpu.DRIVER_FUNCTIONS[0], fake_gpu.DRIVER_FUNCTIONS[-1]):
        source = fake_gpu.FOLDER / f"without_{absent}.c"
        names = [name for name in fake_gpu.DRIVER_FUNCTIONS if name != absent]
        source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
        libraries[fake_gpu.built(source, "-x", "c", fake_gpu.AS_THE_DRIVER)] = f"the CUDA driver has no {absent}"
    for driver, error in libraries.items():
        command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN, driver, LAUNCHER._name, fake_gpu.FRAME._name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said.startswith(f"13 {error}") or (not driver and said == "0 \n"), "this machine has another driver"
