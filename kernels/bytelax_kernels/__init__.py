"""Array kernels of bytelax; they depend on arrays only, never on models."""
