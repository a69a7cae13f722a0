"""Training on a Flower federation."""
