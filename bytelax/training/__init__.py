"""Training: data, objectives, optimizers and the training loop."""
