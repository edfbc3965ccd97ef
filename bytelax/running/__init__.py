"""Serving a batch: requests, rows, compiled programs and results."""

from bytelax.running.generation import generate as generate
from bytelax.running.generation import generate_many as generate_many
from bytelax.running.generation import stream as stream
from bytelax.running.generation import turns as turns
from bytelax.running.results import Output as Output
from bytelax.running.results import Result as Result
from bytelax.running.results import Statistics as Statistics
