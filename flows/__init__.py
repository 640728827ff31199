"""The flows: only the order of steps."""
