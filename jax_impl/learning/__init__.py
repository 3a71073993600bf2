"""Learning to align in JAX, with equinox and optax. The same names as `torch_impl.learning`."""

try:
    import equinox
    import optax
except ImportError as error:
    raise ImportError(f"jax_impl.learning needs equinox and optax: pip install equinox optax ({error})") from None

from jax_impl.learning.models import Encoder, Matrix
from jax_impl.learning.trainer import Trainer

__all__ = ["Encoder", "Matrix", "Trainer"]

del equinox, optax
