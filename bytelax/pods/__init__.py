"""Running on many devices: meshes and sharding, per-device programs, and several processes."""
