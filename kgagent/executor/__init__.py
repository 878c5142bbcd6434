"""Experiments: build, check, time and judge what any proposer wrote."""
