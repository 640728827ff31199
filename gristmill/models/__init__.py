"""Models on disk: the embedded one, and what a model directory holds. No torch at import."""
