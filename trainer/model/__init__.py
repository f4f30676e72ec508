"""The dense network over looked-up rows, its losses, and the backbone that it starts from."""
