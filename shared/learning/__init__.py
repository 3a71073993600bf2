"""Learning to align from families of proteins whose alignment is known; the models are in jax_impl and torch_impl."""
