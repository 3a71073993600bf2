"""Records one of the results in results/ anew: make record NAME=cpu-default

Each name stands for a command of compare.py; its record is results/NAME.json, which names the commit and the machine.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDS = {
    "cpu-default": "speed",
    # the same, hours later: how far ratios move
    "cpu-default-2": "speed",
    "cpu-default-3": "speed",
    "cpu-w": "speed --input random --pass score,marginals,hvp --variant vmap,wavefront,fused --workers 8 --budget 480",
    "cpu-w-all": "speed --input random --pass score,marginals,hvp --workers 3 --compile-limit 60 --budget 1500 "
    "--variant diagonal_loop,scan_cond,scan_select,batch_loop,vmap,wavefront,fused",
    "cpu-w-affine": "speed --problem smith_waterman_affine --input random --pass marginals --variant vmap,fused "
    "--workers 3",
    "cpu-local": "speed --pass score,marginals,hvp --workers 3",
    "cpu-affine": "speed --problem smith_waterman_affine --pass score,marginals,hvp --workers 3 --budget 600",
    "cpu-free-gap": "speed --problem free_gap --pass score,marginals,hvp --workers 3",
    "cpu-global": "speed --problem needleman_wunsch --pass score,marginals,hvp --workers 3",
    "cpu-global-affine": "speed --problem needleman_wunsch_affine --pass score,marginals,hvp --workers 3 --budget 600",
    "cpu-time-warping": "speed --problem soft_dtw --pass score,marginals,hvp --workers 3",
    "cpu-positions": "speed --gaps-by-position --pass score,marginals,hvp --workers 3",
    "cpu-path": "speed --pass marginals,path --variant fused --workers 6 --budget 120",
    "cpu-ladder": "ladder",
    "cpu-growth": "growth --workers 3 --budget 900",
    "cpu-shapes": "shapes --budget 1800",
    "cpu-memory": "memory --memory 2GiB --budget 1200",
    "cpu-threads": "threads --budget 1200",
    "cpu-processes": "processes --workers 6 --budget 1500",
    "cpu-processes-step": "processes --pass step --batch 352 --workers 6 --budget 900",
    "cpu-between": "between --pass score,marginals,hvp --variant wavefront,fused --workers 6 --budget 600",
    # environments as docs/questions.md makes one
    "cpu-versions-jax": "versions --python jax=.venvs/jax-0.10/bin/python --python jax=.venvs/jax-0.11/bin/python "
    "--pass score,marginals,hvp --workers 8 --budget 900",
    "cpu-versions-torch": "versions --python torch=.venvs/torch-2.12/bin/python "
    "--python torch=.venvs/torch-2.13/bin/python --workers 6 --budget 900",
    "cpu-transforms": "transforms --budget 3600",
    "cpu-bridge": "bridge --budget 900",
    "cpu-soft-dtw": "speed --problem docs/soft_dtw.py",
    "cpu-regression": "speed --problem linear_regression --budget 600",
    "cpu-regression-growth": "growth --problem linear_regression --epochs 200 "
    "--sizes 100,1000,10000,100000,1000000 --workers 3 --budget 150",
    "cpu-stencil-ladder": "ladder --problem stencil --pass value,gradient",
    "cpu-stencil-growth": "growth --problem stencil --workers 2 --compile-limit 300",
    "gpu-default": "speed --device cuda --workers 3",
    "gpu-graphs": "graphs --device cuda --workers 3 --pass score",
    "cpu-learning": "learning",
    "cpu-learning-encoder": "learning --model encoder",
    "cpu-learning-wavefront": "learning --variant wavefront --budget 3300",
}


def main() -> int:
    """Run the command of a name; the exit code is that of compare.py."""
    if len(sys.argv) != 2 or sys.argv[1] not in RECORDS:
        print(f"expected one name of {', '.join(RECORDS)}", file=sys.stderr)
        return 2
    name = sys.argv[1]
    command = [sys.executable, "compare.py", *RECORDS[name].split(), "--json", f"results/{name}.json", "--force"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
