"""How good a reward is: value-order correlation and the controls without which it means nothing."""
