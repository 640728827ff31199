"""Reading: values that are tied to the text are found in it, by what the worked examples teach about the model's own
states; nothing is written for them."""
