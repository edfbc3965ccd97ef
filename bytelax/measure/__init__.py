"""Measurements of models and methods: timing, likelihood, task scores, searches for settings."""
