"""Learning to align in PyTorch. The same names as `jax_impl.learning`."""

from torch_impl.learning.models import Encoder, Matrix
from torch_impl.learning.trainer import Trainer

__all__ = ["Encoder", "Matrix", "Trainer"]
