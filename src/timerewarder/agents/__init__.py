"""Learning to act: the replay, DrQ-v2, behaviour cloning, and the one training loop."""
