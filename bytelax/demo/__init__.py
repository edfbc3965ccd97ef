"""Every method on the same prompts, and where each byte of it came from."""
