"""What a model's methods are worth on given text, and with which settings."""
