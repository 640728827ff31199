"""Closing: a JSON Schema made ready to be a tree, step by step; `closer` puts the steps together."""
