"""The C++ that launches kernels for XLA, called as XLA calls it, on a CUDA driver that only says what it was asked for.

To be imported before JAX and PyTorch are used, which may load the true driver: of two libraries of one name the first
is taken.
"""

import atexit
import ctypes
import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
from collections import namedtuple
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shared.kernels.cpp.build import find_compiler

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "jax_impl/kernels"
DRIVER_FUNCTIONS = re.findall(r'"(cu\w+)"', (KERNELS / "driver.h").read_text())
FOLDER = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def built(source: Path, *flags: str) -> str:
    """A library, of C++ or of C."""
    library = FOLDER / f"{source.stem}.so"
    command = [*find_compiler(), *flags, "-shared", "-fPIC", str(source), "-o", str(library)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return str(library)


AS_THE_DRIVER = "-Wl,-soname,libcuda.so.1"
FLAGS = ("-std=c++17", "-Wall", "-Werror")
TRITON: Any = importlib.util.find_spec("triton")
CUDA_HEADERS = Path(TRITON.origin).parent / "backends/nvidia/include"
FAKE = ctypes.CDLL(
    built(HERE / "fake_cuda.cpp", *FLAGS, AS_THE_DRIVER, f"-I{CUDA_HEADERS}", f"-I{KERNELS}", "-ldl"),
    mode=ctypes.RTLD_GLOBAL,
)
FAKE.fake_log.restype = ctypes.c_char_p
FAKE.fake_stream.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int

# not whether JAX has been imported, as pytest's plugin of jaxtyping does
assert ctypes.CDLL("libcuda.so.1")._handle == FAKE._handle, "the true driver was loaded first"
import jax  # noqa: E402

import jax_impl.kernels.triton_binding as jax_calls  # noqa: E402

FRAME = ctypes.CDLL(built(HERE / "call_frame.cpp", *FLAGS, f"-I{jax.ffi.include_dir()}"))
FRAME.traits.restype = ctypes.c_int64
jax_calls.register()
LAUNCHER = jax_calls._alive[0]
BUFFER, NARROW, WIDE = jax_calls._BUFFER, jax_calls._NARROW, jax_calls._WIDE
ADDRESS = 0x7F00_0000_1000


# of the machine's; handles are any numbers, and of two streams this is the first, the other one the next number
Gpu = namedtuple("Gpu", "number capability context stream")
GPUS = [Gpu(n, capability, 0xC000 + n, 0x5000 + 2 * n) for n, capability in enumerate((90, 86, 90))]
GPU = GPUS[0]
# as the driver was asked for it
Launched = namedtuple("Launched", "name function grid block shared stream parameters")


class Compiler:
    """A stand-in for Triton, whose machine code is a text that names its source."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []  # kernel and compute capability
        self.facts: dict[str, Any] = {}  # which replace those below
        self.kept: list[Any] = []

    def __call__(self, kernel: bytes, capability: int, found: Any) -> int:
        self.asked.append((kernel.decode(), capability))
        code = ctypes.create_string_buffer(f"{kernel.decode()} for {capability}".encode())
        facts = {"name": kernel, "sizes": bytes([8, 8, 8]), "threads": 32, "shared": 1024, "scratch": 0, "blocks": 1}
        facts |= {"code": ctypes.addressof(code), **self.facts}
        facts |= {"parameters": len(facts["sizes"])}
        self.kept.append((code, facts))
        for name, value in facts.items():
            setattr(found.contents, name, value)
        FAKE.fake_kernel(kernel, facts["sizes"], len(facts["sizes"]))
        return 0


def compile_with(find: Any) -> None:
    """Give C++ what finds kernels, a function of Python's."""
    function = jax_calls._Find(find)
    jax_calls._alive.append(function)
    LAUNCHER.use_functions(function, jax_calls._Interpret())


def start() -> None:
    """Nothing is loaded or fails, and there are three GPUs, two of them of one kind."""
    FAKE.fake_reset()
    LAUNCHER.forget_kernels()
    for gpu in GPUS:
        for stream in (gpu.stream, gpu.stream + 1):
            FAKE.fake_stream(stream, gpu.context, gpu.number, gpu.capability)


def call(
    kernels: str, numbers: Sequence[int], buffers: Iterable[tuple[int, int]], results: int, stream: int = GPU.stream
) -> str | None:
    """The error's text, if there is one. buffers: addresses and bytes, of arguments and then of the results."""
    places, room = list(buffers), ctypes.create_string_buffer(4096)
    code = FRAME.call(
        LAUNCHER.xla_launch_on_gpu,
        ctypes.c_void_p(stream),
        kernels.encode(),
        (ctypes.c_int64 * len(numbers))(*numbers),
        ctypes.c_int64(len(numbers)),
        (ctypes.c_void_p * len(places))(*(address for address, _ in places)),
        (ctypes.c_int64 * len(places))(*(size for _, size in places)),
        ctypes.c_int64(len(places) - results),
        ctypes.c_int64(results),
        room,
        ctypes.c_int64(len(room)),
    )
    return room.value.decode() if code else None


def launch(kernel: str = "one", stream: int = GPU.stream, grid: int = 3) -> str | None:
    """A launch of what `Compiler` compiles, with a buffer and the number 5; the error's text, if there is one."""
    return call(f"{kernel}\n", [grid, 2, BUFFER, 0, WIDE, 5], [(ADDRESS, 64)], 0, stream)


class Asked(list[list[Any]]):
    """The driver's calls since the last time: functions with their arguments."""

    def __init__(self) -> None:
        super().__init__(json.loads(line) for line in FAKE.fake_log().decode().splitlines())

    def of(self, function: str) -> list[list[Any]]:
        """The arguments of each call of a function."""
        return [arguments for name, *arguments in self if name == function]

    @property
    def launches(self) -> list[Launched]:
        return [Launched(words[0], words[1], words[2:5], words[5:8], *words[8:]) for words in self.of("cuLaunchKernel")]

    @property
    def loaded(self) -> list[str]:
        """The machine code that was loaded, where it is a text."""
        return [ctypes.string_at(address).decode() for (address,) in self.of("cuModuleLoadData")]
