"""The registered ranker as MLflow serves it; MLflow copies this file beside the model and runs it when it loads one."""

from typing import TYPE_CHECKING, Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from trainer.serving import Scorer


class ServedRanker(PythonModel):
    """Scores impressions with the `trainer.serving.Scorer` of the model folder that was registered."""

    _scorer: "Scorer"

    def load_context(self, context: PythonModelContext) -> None:
        """Loads the model folder."""
        # Registering runs this file too, in a step that needs no torch.
        from trainer.serving import Scorer

        self._scorer = Scorer.load(context.artifacts["model"])

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Probabilities, one float column a label, with the index of `model_input`."""
        return self._scorer.predict(model_input)


set_model(ServedRanker())
