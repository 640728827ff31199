"""The grammar: from a schema to a constraint on what the model may write, as JSON or as XML."""
