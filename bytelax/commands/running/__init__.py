"""What the commands do; `bytelax.commands` has their flags, which import no JAX."""
