"""Training: data, objectives and the loop."""
