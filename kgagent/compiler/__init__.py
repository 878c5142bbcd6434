"""The TPU compiler with no TPU: ahead-of-time compilation and what it can decide."""
