"""The reward server: the page, the API under /v1, and the streams for robots."""
