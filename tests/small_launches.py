"""Launches every kernel of `fused` in each layout on matrices of several strips, for compute-sanitizer.

    compute-sanitizer --tool racecheck python tests/small_launches.py

PyTorch launches them; JAX launches the same machine code. racecheck sees shared memory alone, not the rows that a strip
leaves to the next one in the GPU's.
"""

import functools

import torch

import torch_impl
import torch_impl.kernels.triton_binding as calls
from shared.alignments import ALIGNMENTS
from shared.kernels.triton.programs import NARROW, TALL, WIDE

DEVICE = "cuda"
LAYOUTS = (NARROW, WIDE, TALL)


def launch_all() -> None:
    for layout in LAYOUTS:
        calls.forced_layout = layout
        for problem, dtype in (*((name, torch.float32) for name in ALIGNMENTS), ("smith_waterman", torch.float64)):
            rows = 2 * layout.lanes + 5
            s = torch.randn(3, rows, 5, dtype=dtype, device=DEVICE)
            lengths = torch.tensor([(rows, 5), (rows // 2, 3), (0, 5)], dtype=torch.int32, device=DEVICE)
            function = functools.partial(getattr(torch_impl, problem), variant="fused")
            function(s, lengths)
            torch_impl.marginals(function, s, lengths)
            torch_impl.hessian_vector_product(function, s, s, lengths)
            torch_impl.best_alignment(getattr(torch_impl, problem), s, lengths)
            if "end_gaps" in ALIGNMENTS[problem].options:  # gaps by axis
                torch_impl.marginals(function, s, lengths, end_gaps="free")
    torch.cuda.synchronize()


if __name__ == "__main__":
    launch_all()
