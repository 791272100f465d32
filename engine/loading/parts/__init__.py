"""Parts that a load brings, each with its own way to be found, sized, read and attached."""
