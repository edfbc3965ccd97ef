"""Array kernels of bytelax. They know arrays, never models."""
