"""Lanes: what is optimised and how it is judged."""
