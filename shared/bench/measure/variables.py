"""Environment variables that change what is measured: refused, warned of, or recorded."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

# these disable what is compared, each with the framework that it is of; on: any other value than these
_DISABLING = {"JAX_DISABLE_JIT": "jax", "TORCH_COMPILE_DISABLE": "torch", "TORCHDYNAMO_DISABLE": "torch"}
_OFF = ("", "0", "false", "no", "off", "n", "f")
# these make calls slower or faster, as measured or as their documentation says
_TIMED = re.compile(
    r"JAX_(DEBUG_NANS|DEBUG_INFS|DISABLE_MOST_OPTIMIZATIONS|CHECK_TRACER_LEAKS|ENABLE_CHECKS|ENABLE_X64|"
    r"DEFAULT_MATMUL_PRECISION)|XLA_FLAGS|LIBTPU_INIT_ARGS|LD_PRELOAD|MALLOC_\w+|GLIBC_TUNABLES|"
    r"(OMP|KMP|GOMP)_(?!NUM_THREADS)\w+|MKL_(?!NUM_THREADS)\w+|CUDA_LAUNCH_BLOCKING|PYTORCH_NO_CUDA_MEMORY_CACHING|"
    r"PYTORCH_(CUDA_)?ALLOC_CONF|TORCH_LOGS|TORCH_SHOW_\w+|TORCHINDUCTOR_(MAX_AUTOTUNE|FREEZING|CPP_\w+)|"
    r"TRITON_INTERPRET|ATEN_CPU_CAPABILITY|DNNL_\w+|ONEDNN_\w+"
)
_RECORDED = re.compile(
    r"(JAX|XLA|TORCH|TORCHINDUCTOR|TORCHDYNAMO|TORCH_\w+|PYTORCH|OMP|GOMP|KMP|MKL|NVIDIA|CUDA|TRITON|MALLOC)_\w+"
)
# set by container images, of which nobody asked for any
_OF_IMAGES = re.compile(
    r"NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_\w+|PRODUCT_NAME|\w+_VERSION)|CUDA_HOME|"
    r"(CUDA|PYTORCH)_(\w+_)?VERSION|TORCH_CUDA_ARCH_LIST"
)
_FOLDERS = re.compile(r"(?<![\w.])~?/[^\s,:;=]*/")


def disabling(frameworks: Sequence[str]) -> str | None:
    """Return what to tell a user whose environment disables what is compared, or None."""
    for name, framework in _DISABLING.items():
        if framework in frameworks and (value := os.environ.get(name, "")).lower() not in _OFF:
            how = f"unset it, as by: env -u {name} python compare.py ..."
            return f"{name}={value} in the environment disables the compiler that is compared: {how}"
    return None


def recorded() -> dict[str, str]:
    """The user's variables that may change what is measured, without the folders in their values."""
    every = sorted(os.environ.items())
    kept = {name: value for name, value in every if _TIMED.fullmatch(name) or _RECORDED.fullmatch(name)}
    return {name: _FOLDERS.sub("", value) for name, value in kept.items() if not _OF_IMAGES.fullmatch(name)}


def warnings(variables: Mapping[str, str]) -> Iterator[str]:
    """Lines for a reader of times that recorded variables may have changed."""
    if timed := [f"{name}={value}" for name, value in variables.items() if _TIMED.fullmatch(name)]:
        yield f"The environment has variables that change times: {', '.join(timed)}."
