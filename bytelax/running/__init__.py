"""Serving a batch: requests, rows, compiled programs and results."""

from bytelax.running.generation import generate, generate_many, stream, turns
from bytelax.running.results import Output, Result, Statistics

__all__ = ["Output", "Result", "Statistics", "generate", "generate_many", "stream", "turns"]
