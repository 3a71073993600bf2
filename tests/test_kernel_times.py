"""tools/kernel_times.py, as far as it goes without a GPU."""

import importlib.util

import pytest
import torch

from tools import kernel_times
from torch_impl import accelerator

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


@pytest.mark.parametrize("call", kernel_times.CALLS)
def test_an_argument_becomes_the_kernels_and_all_that_they_take(call):
    program = kernel_times.program(kernel_times.asked(f"smith_waterman_affine/{call}/600x70x50/1x16x96"))
    names = ["odds_forward_kernel", "odds_backward_kernel"]
    assert [launch.kernel.name for launch in program.launches] == (names[:1] if call == "score" else names)
    given = {"similarity", "lengths", "values", *(["t_similarity"] if call == "product" else []), *program.scratch}
    for launch in program.launches:
        constants = dict(launch.kernel.constants)
        assert (constants["height"], constants["steps"], launch.kernel.registers) == (1, 16, 96)
        assert {name for name in launch.arguments if isinstance(name, str)} <= given


def test_an_argument_may_name_several_warps_or_leave_the_layout_to_the_library():
    chunk = kernel_times.asked("smith_waterman/score/64x100x150/2x8x0x2").layout.scores
    assert chunk == (64, 2, 8, None, 2)
    assert kernel_times.asked("free_gap/score/4096x512x512").layout == kernel_times.layout_of(4096, 512)


@pytest.mark.parametrize(
    "wrong", ["smith_waterman/score", "sw/score/1x2x3", "free_gap/score/1x2x3/4x8x0x3", "free_gap/score/1x2x3/4x7x0"]
)
def test_a_wrong_argument_is_told(wrong, capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        kernel_times.main([wrong])
    assert f"expected {kernel_times.FORM}, for example {kernel_times.EXAMPLE}, not {wrong!r}" in capsys.readouterr().err


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert kernel_times.main([kernel_times.EXAMPLE]) == 3
    assert " sees no cuda device " in capsys.readouterr().err


def test_kernels_are_compiled_first_and_one_that_does_not_run_gives_its_error(monkeypatch, capsys):
    def times(what: kernel_times.Asked) -> str:
        done.append(what.call)
        return {"score": "2 µs"}[what.call]

    done = []
    monkeypatch.setattr(kernel_times, "device_problem", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(accelerator, "compile_ahead", lambda *given: done.append((len(given[0]), given[1])))
    monkeypatch.setattr(kernel_times, "times", times)
    texts = [f"free_gap/{call}/64x100x150" for call in ("gradients", "score")]
    assert kernel_times.main(texts) == 1
    assert done == [(3, 90), "gradients", "score"]
    assert capsys.readouterr().out == f"{texts[0]}: KeyError: 'gradients'\n{texts[1]}: 2 µs\n"
