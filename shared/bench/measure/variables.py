"""Environment variables and frameworks' settings that change what is measured: refused, warned of, or recorded."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.problems.own_file import SET_BY_FILES

# what disables or replaces a compiler: its framework, and the values for which it does
_DISABLING = {"JAX_DISABLE_JIT": ("jax", "y|yes|t|true|on|1"), "TORCH_COMPILE_DISABLE": ("torch", "1"),
              "TORCHDYNAMO_DISABLE": ("torch", "1"), "TORCH_COMPILE_OVERRIDE_BACKENDS": ("torch", ".+")}  # fmt: skip
# these make calls slower or faster, as measured or as their documentation says
_CHANGES_TIMES = re.compile(
    r"JAX_(DEBUG_NANS|DEBUG_INFS|DISABLE_MOST_OPTIMIZATIONS|CHECK_TRACER_LEAKS|ENABLE_CHECKS|"
    r"DEFAULT_MATMUL_PRECISION|ENABLE_X64)|TORCH\..+|XLA_FLAGS|LIBTPU_INIT_ARGS|LD_PRELOAD|MALLOC_\w+|GLIBC_TUNABLES|"
    r"(OMP|KMP|GOMP)_(?!NUM_THREADS)\w+|MKL_(?!NUM_THREADS)\w+|CUDA_LAUNCH_BLOCKING|PYTORCH_NO_CUDA_MEMORY_CACHING|"
    r"PYTORCH_(CUDA_)?ALLOC_CONF|TORCH_LOGS|TORCH_SHOW_\w+|TORCHINDUCTOR_(CUDAGRAPHS|MAX_AUTOTUNE|FREEZING|CPP_\w+)|"
    r"TRITON_INTERPRET|ATEN_CPU_CAPABILITY|DNNL_\w+|ONEDNN_\w+"
)
_RECORDED = re.compile(r"(JAX|XLA|(PY)?TORCH|TORCHINDUCTOR|TORCHDYNAMO|G?OMP|KMP|MKL|NVIDIA|CUDA|TRITON|MALLOC)_\w+")
# set by container images, or by the benchmark for its workers, whatever the user has set
_NOT_THE_USERS = re.compile(
    r"NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_\w+|PRODUCT_NAME|\w+_VERSION)|CUDA_HOME|"
    r"(CUDA|PYTORCH)_(\w+_)?VERSION|TORCH_CUDA_ARCH_LIST|"
    r"\w+_NUM_THREADS|JAX_(ENABLE_X64|PLATFORMS)|NVIDIA_TF32_OVERRIDE|TRITON_CACHE_DIR"
)
# the folders of a path; in quotes they may contain any character
_FOLDERS = re.compile(r"""(?<=")~?/[^"]*/|(?<=')~?/[^']*/|(?<![\w.])~?/(?:\\.|[^\s,:;=])*/""")


def disabling(frameworks: Sequence[str]) -> str | None:
    """Return what to tell a user whose environment disables what is compared, or None."""
    for name, (framework, on) in _DISABLING.items():
        value = os.environ.get(name, "")
        if framework in frameworks and re.fullmatch(on, value.lower()):
            where, how = "in the environment", f"unset it, as by: env -u {name} python compare.py ..."
            if name in SET_BY_FILES:
                where, how = f"set by {SET_BY_FILES[name]}", "remove it there"
            return f"{name}={value}, {where}, disables the compiler that is compared: {how}"
    return None


def recorded(by_files: bool = False) -> dict[str, str]:
    """The variables that may change what is measured, without the folders in their values.

    by_files: those that a user's file sets when it is executed; otherwise those of the environment.
    """
    names = (name for name in sorted(os.environ) if _CHANGES_TIMES.fullmatch(name) or _RECORDED.fullmatch(name))
    chosen = (name for name in names if not _NOT_THE_USERS.fullmatch(name) and (name in SET_BY_FILES) == by_files)
    return {name: _FOLDERS.sub("", os.environ[name]) for name in chosen}


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a framework that are not as before, without the folders in their values."""
    return {name: _FOLDERS.sub("", str(value)) for name, value in now.items() if value != before.get(name, value)}


def warnings(variables: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[str]:
    """Warn of variables, and of settings changed by measured functions, that may change times."""
    if timed := [f"{name}={value}" for name, value in variables.items() if _CHANGES_TIMES.fullmatch(name)]:
        yield f"The environment has variables that change times: {', '.join(timed)}."
    if timed := [f"{name}={value}" for name, value in settings.items() if _CHANGES_TIMES.fullmatch(name.upper())]:
        yield f"The code that was measured changed settings that change times: {', '.join(timed)}."
