"""Launches that fail: an error that says what was wanted and why there is none."""

import json
import subprocess
import sys
from collections.abc import Iterator

import fake_gpu  # first: it is the driver that is found
import pytest
from fake_gpu import (
    ADDRESS,
    BUFFER,
    DRIVER_FUNCTIONS,
    FAKE,
    LAUNCHER,
    NARROW,
    Compiler,
    asked,
    jax_calls,
    launch,
    launches,
)

from shared.kernels.triton.programs import Kernel

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


@pytest.fixture(autouse=True)
def compiler() -> Iterator[Compiler]:
    own = Compiler()
    fake_gpu.start()
    fake_gpu.compile_with(own)
    own.facts = {"shared": SHARED}
    yield own
    fake_gpu.start()


def test_no_function_of_the_driver_is_left_out():
    assert set(FAILED) | ONLY_AFTER_A_FAILURE == set(DRIVER_FUNCTIONS)


@pytest.mark.parametrize("function", FAILED)
def test_what_the_driver_could_not_do_is_said_and_nothing_is_left_behind(function: str):
    FAKE.fake_failure(function.encode(), 719)
    assert launch() == f"the CUDA driver could not {FAILED[function]}: reason 719"
    assert FAKE.fake_contexts() == (function == "cuCtxPopCurrent_v2") and FAKE.fake_capture_mode() == 0
    assert FAKE.fake_modules() == (function in STAYS_LOADED)
    FAKE.fake_failure(function.encode(), 0)
    asked()
    assert launch() is None and FAKE.fake_modules() == len(launches(asked())) == 1


def test_a_reason_that_the_driver_does_not_know_is_a_number():
    for function in ("cuLaunchKernel", "cuGetErrorString"):
        FAKE.fake_failure(function.encode(), 719)
    assert launch() == "the CUDA driver could not launch one: error 719"


def test_the_first_failure_is_the_one_that_is_said():
    for function in ("cuModuleGetFunction", "cuModuleUnload", "cuCtxPopCurrent_v2"):
        FAKE.fake_failure(function.encode(), 719)
    assert launch() == "the CUDA driver could not find one in what it has loaded: reason 719"


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
