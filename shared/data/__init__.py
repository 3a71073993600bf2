"""Bundled sequences."""
