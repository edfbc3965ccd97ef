"""Many devices: the mesh and its rules, programs per device, processes, and arrays across them."""
