"""The images that steps run in, by name; a recipe's `cluster` section may name those of a mirror instead."""

DATA_IMAGE = "thawline/data:0.1.0"
TRAINER_IMAGE = "thawline/trainer-cpu:0.1.0"
TRAINER_GPU_IMAGE = "thawline/trainer-gpu:0.1.0"

IMAGE_USER = 10001
"""Their user and group."""
