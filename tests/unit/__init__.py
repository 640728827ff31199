"""Fast tests: no model, no server."""
