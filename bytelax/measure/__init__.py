"""What models and methods are worth: timing, searches for settings, and scores."""
