"""XML: the second spelling of the tree, with its names, its XSD and the way back."""
