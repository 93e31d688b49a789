"""Gymnasium environments: Meta-World with the paper's cameras, start ranges and horizons, and its demonstrations."""
