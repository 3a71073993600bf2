"""Arguments of the public functions in PyTorch: what the host can see of them, and how they become clean tensors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from shared import checks
from shared.alignments import COLS, LAST_TURN, ROWS, Recurrence, axis_of
from shared.tolerances import LARGEST_GAP, LOWEST, TEMPERATURES
from torch_impl.dtensors import REMEDY, is_dtensor
from torch_impl.transforms import is_traced


class Arguments(NamedTuple):
    """Checked and clean: temperatures positive; if masked, the caller's matrices 0 outside lengths."""

    similarity: torch.Tensor  # (*batch, rows, cols), at least 1 x 1; float32 or float64
    lengths: torch.Tensor  # (*batch, 2), int64, inside the matrix
    parameters: dict[str, torch.Tensor]  # each (*batch); a gap by position like similarity
    temperature_factor: torch.Tensor  # (*batch), 1, or NaN for a pair whose temperature is not positive and finite
    result_dtype: torch.dtype


def see(argument: Any) -> checks.Seen:
    """Describe an argument without waiting for a device; what is being traced or lives on a device has no values."""
    if isinstance(argument, np.ndarray) and torch.compiler.is_compiling():
        argument = torch.as_tensor(argument)  # the compiler knows NumPy arrays as tensors
    if not isinstance(argument, torch.Tensor):
        return checks.see_host(argument)
    if is_dtensor(argument):
        return checks.Seen(f"DTensor beside a similarity that is not one; {REMEDY}", None)
    if argument.is_nested:
        return checks.Seen("nested torch.Tensor", None)
    if argument.layout is not torch.strided:
        return checks.Seen(f"torch.Tensor of layout {str(argument.layout).removeprefix('torch.')}", None)
    on_host = argument.device.type == "cpu" and not is_traced(argument)
    return checks.Seen(
        "torch.Tensor",
        tuple(argument.shape),
        str(argument.dtype).removeprefix("torch."),
        (lambda: argument.detach().flatten().tolist()) if on_host else None,
    )


def _tensor(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A Python number, NumPy array or tensor on any device, as a tensor on `device`; stays differentiable."""
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=dtype)
    if isinstance(value, np.ndarray):
        value = _copied(value)
    elif device.type != "cpu" and isinstance(value, (int, float)):
        return torch.full(
            (), value, dtype=dtype, device=device
        )  # copying a number there would synchronize with the device
    return torch.tensor(value, dtype=dtype, device=device)


def vector_of(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Python's numbers as a tensor on `device`, without waiting for it."""
    if device.type == "cpu":
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.stack([_tensor(number, dtype, device) for number in numbers])


def values_and_gaps(parameters: dict[str, torch.Tensor], batch: torch.Size) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The parameters (*batch, P), with zeros for the gaps by position; and the list of these gaps."""
    gaps = [value for value in parameters.values() if value.ndim > 1]
    columns = [value.new_zeros(batch) if value.ndim > 1 else value.expand(batch) for value in parameters.values()]
    return torch.stack(columns, dim=-1), gaps


def _limited(gap: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    """A gap within the limits: (*batch), or by position."""
    if gap.ndim <= 1:
        return gap.expand(batch).clamp(LOWEST, LARGEST_GAP)
    # unlike clamp, these make the gradient NaN where the gap is NaN
    return gap.minimum(gap.new_full((), LARGEST_GAP)).maximum(gap.new_full((), LOWEST))


def _copied(array: np.ndarray) -> np.ndarray:
    """A copy (an array may be read-only or have negative strides); bfloat16, which PyTorch cannot read, as float32."""
    return np.array(array, np.float32 if str(array.dtype) == "bfloat16" else None)


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """A copy as a tensor of the same dtype."""
    tensor = torch.tensor(_copied(array))
    return tensor.to(torch.bfloat16) if str(array.dtype) == "bfloat16" else tensor


def inside(lengths: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
    """Mask (*batch, rows, cols) of the cells inside lengths (*batch, 2)."""
    i, j = torch.arange(rows, device=lengths.device), torch.arange(cols, device=lengths.device)
    return (i[:, None] < lengths[..., 0, None, None]) & (j < lengths[..., 1, None, None])


def prepare(
    similarity: Any, lengths: Any, parameters: dict[str, Any], recurrence: Recurrence, mask: bool = True
) -> Arguments:
    """Check, convert and clean. Raises TypeError or ValueError with the texts of shared.checks.

    Costs become similarities, and gaps that are free in the last row or column become gaps by position. Without `mask`
    what lies outside lengths is left as it is, even NaN.
    """
    checks.check_alignment(see, similarity, lengths, parameters, recurrence.matrix)
    s = similarity if isinstance(similarity, torch.Tensor) else from_numpy(similarity)
    result_dtype, batch, (rows, cols) = s.dtype, s.shape[:-2], s.shape[-2:]
    s = s.to(torch.promote_types(s.dtype, torch.float32))
    s = -s if recurrence.is_cost else s
    full = vector_of((rows, cols), torch.int64, s.device)
    sizes = full if lengths is None else _tensor(lengths, torch.int64, s.device).clamp(min=0).minimum(full)
    sizes = sizes.expand(*batch, 2)

    values = {name: _tensor(value, s.dtype, s.device) for name, value in parameters.items()}
    by_position = [name for name, value in values.items() if value.ndim > 1]
    if mask:
        # the inputs are selected, not only the results: a where on a result does not keep a NaN out of its gradient
        exists = inside(sizes, rows, cols)
        s = torch.where(exists, s, 0.0).maximum(s.new_full((), LOWEST))
        values |= {name: torch.where(exists, values[name], 0.0) for name in by_position}
    if not (rows and cols):  # an empty matrix gets a row or column outside lengths
        padding = 0, max(0, 1 - cols), 0, max(0, 1 - rows)
        s = torch.nn.functional.pad(s, padding)
        values |= {name: torch.nn.functional.pad(values[name], padding) for name in by_position}
    # gaps and temperatures beyond the limits count as the limit
    temperature = values.pop("temperature").expand(batch)
    values = {name: _limited(value, batch) for name, value in values.items()}
    if recurrence.is_by_axis:
        values = _free_at_the_end(recurrence, values, sizes, s)
    usable = (temperature > 0) & (temperature < torch.inf)
    temperature_factor = torch.where(usable, 1.0, torch.nan).to(s.dtype)
    values["temperature"] = torch.where(usable, temperature.clamp(*TEMPERATURES), 1.0)
    return Arguments(s, sizes, values, temperature_factor, result_dtype)


def _free_at_the_end(
    recurrence: Recurrence, values: dict[str, torch.Tensor], sizes: torch.Tensor, like: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The gaps by axis: (*batch), or, if free in the last row or column, by position with 0 there."""
    last = [
        torch.arange(count, device=like.device) == sizes[..., axis, None] - 1
        for axis, count in enumerate(like.shape[-2:])
    ]
    is_last = {ROWS: last[0][..., :, None], COLS: last[1][..., None, :]}
    for name in recurrence.by_position:
        axis = axis_of(name) or ROWS
        value = like.new_full((), LOWEST) if name == LAST_TURN else values[name][..., None, None]
        values[name] = torch.where(is_last[axis], 0.0 * value, value).expand(like.shape)
    return {name: values[name] for name in recurrence.parameters}


def nan_factor(arguments: Arguments) -> torch.Tensor:
    """(*batch), 1, or NaN for a pair whose matrices hold NaN or +inf, even in cells where no alignment passes."""
    s, _, parameters, temperature_factor, _ = arguments
    matrices = [s, *(value for value in parameters.values() if value.ndim > temperature_factor.ndim)]
    finite = [matrix.detach().amax((-2, -1)) < torch.inf for matrix in matrices]
    return torch.where(torch.stack(finite).all(0), 1.0, torch.nan).to(s.dtype)
