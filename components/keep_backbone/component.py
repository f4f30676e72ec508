"""Step: the branch on which a backbone is there already."""

from kfp import dsl

from components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def keep_backbone(version: str) -> str:
    """The version as it is: `dsl.OneOf` wants a task on either branch."""
    return version
