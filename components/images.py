"""The images that steps run in, by name; a cluster's mirror is set when its manifests are built, not here."""

DATA_IMAGE = "thawline/data:0.1.0"
TRAINER_IMAGE = "thawline/trainer-cpu:0.1.0"
TRAINER_GPU_IMAGE = "thawline/trainer-gpu:0.1.0"
