"""Networks without their training: encoders, the two-hot code, checkpoints."""
