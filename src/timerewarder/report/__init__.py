"""What a person sees of a learned reward: plots, videos with their curves, and one self-contained page."""
