import io

import numpy as np
from PIL import Image

from trainer.windows.sources.media import thumbnails, titles

LATENTS = np.random.default_rng(0).standard_normal((600, 16), dtype=np.float32)


def explained(design: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Correlation of a linear probe with each target, on the half that it was not fitted to."""
    half = len(design) // 2
    weights = np.linalg.lstsq(design[:half], targets[:half], rcond=1e-6)[0]
    return np.array(
        [np.corrcoef(design[half:] @ weights[:, k], targets[half:, k])[0, 1] for k in range(targets.shape[1])]
    )


def test_a_thumbnail_shows_the_first_quarter_of_the_latent_vector() -> None:
    images = [Image.open(io.BytesIO(png.as_py())) for png in thumbnails(LATENTS)]
    assert {(image.size, image.mode, image.format) for image in images} == {((16, 16), "RGB", "PNG")}
    pixels = np.stack([np.asarray(image, np.float64).ravel()[::12] / 255 for image in images])
    design = np.concatenate([np.ones((len(pixels), 1)), pixels], axis=1)
    correlation = explained(design, LATENTS)
    assert (correlation[:4] > 0.9).all()
    assert (np.abs(correlation[4:]) < 0.25).all()


def test_a_title_names_the_second_quarter_in_words() -> None:
    words = [title.as_py().split(" ") for title in titles(LATENTS)]
    assert {len(title) for title in words} == {4}
    vocabulary = sorted({word for title in words for word in title})
    assert len(vocabulary) == 16
    design = np.array([[float(word in title) for word in vocabulary] for title in words])
    correlation = explained(design, LATENTS)
    assert (correlation[4:8] > 0.9).all()
    assert (np.abs(correlation[[0, 1, 2, 3, *range(8, 16)]]) < 0.25).all()
