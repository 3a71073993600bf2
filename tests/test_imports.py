"""What imports and calls leave as it was: flags, devices, settings, and what is not imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config as functorch_config

import torch_impl
from torch_impl.compiler import compiled

ROOT = Path(__file__).parent.parent


def in_a_fresh_process(program: str, **environment: str) -> Any:
    """The JSON that a program prints, run where nothing has been imported."""
    command, own = [sys.executable, "-c", program], os.environ | environment
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_jax_impl_changes_no_flag_starts_no_device_and_compiles_nothing(tmp_path):
    before, after, backends, loaded = in_a_fresh_process(
        """
import json, os, sys, warnings
import jax, numpy
from jax._src import xla_bridge
state = lambda: repr((dict(os.environ), sorted(jax.config.values.items(), key=str), numpy.geterr(), warnings.filters))
before = state()
import jax_impl, jax_impl.backend
print(json.dumps([before, state(), len(xla_bridge._backends), "torch" in sys.modules]))
""",
        ALIGNMENT_CACHE=str(tmp_path / "cache"),
    )
    assert before == after
    assert backends == 0
    assert not loaded
    assert not (tmp_path / "cache").exists()


def test_importing_torch_impl_changes_no_flag_starts_no_device_and_compiles_nothing(tmp_path):
    before, after, cuda, loaded = in_a_fresh_process(
        """
import json, os, sys, warnings
import torch, torch._dynamo, torch._inductor.config, torch._functorch.config, numpy
configs = torch._dynamo.config, torch._inductor.config, torch._functorch.config
general = lambda: [torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),
                   torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()]
state = lambda: repr((dict(os.environ), [c.shallow_copy_dict() for c in configs], general(), numpy.geterr()))
before = state()
import torch_impl, torch_impl.backend
print(json.dumps([before, state(), torch.cuda.is_initialized(), "jax" in sys.modules]))
""",
        ALIGNMENT_CACHE=str(tmp_path / "cache"),
    )
    assert before == after
    assert not cuda
    assert not loaded
    assert not (tmp_path / "cache").exists()


def test_shared_imports_no_framework():
    loaded = in_a_fresh_process(
        """
import importlib, json, pkgutil, sys
import shared
for module in pkgutil.walk_packages(shared.__path__, "shared."):
    if "worker" not in module.name and not module.name.startswith("shared.bench"):
        importlib.import_module(module.name)
print(json.dumps([name for name in ("jax", "torch") if name in sys.modules]))
"""
    )
    assert loaded == []


def test_a_compiled_call_puts_the_settings_back():
    def settings() -> tuple:
        dynamo = torch._dynamo.config
        return dynamo.capture_scalar_outputs, dynamo.recompile_limit, functorch_config.donated_buffer

    before = settings()
    torch_impl.smith_waterman(torch.ones(2, 2), variant="scan_select")
    compiled(torch_impl.smith_waterman, backend="eager")(torch.ones(2, 2))
    assert settings() == before
