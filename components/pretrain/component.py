"""Step: contrastive pretraining of tables and network."""

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def pretrain(recipe: str, date: str, store: str, window: str, backbone: dsl.Output[dsl.Model]) -> None:
    """Trains a backbone.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        window: Path of the manifest of the backbone's days.
        backbone: Folder of the weights and their description.
    """
    from components.step import step

    with step("pretrain", recipe, date, store) as run:
        from components.launching import launcher_of
        from trainer.launch import launch_pretraining

        launch_pretraining(run.recipe, window, backbone.path, launcher_of(run, "pretrain"))
