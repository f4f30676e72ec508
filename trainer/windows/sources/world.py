"""The known model behind the synthetic log: who likes what, what is shown, and what is seen of it.

Users and pins are points in one latent space; a pin belongs to a topic, has a quality of its own and a popularity with
a long tail. Every day fresh pins are born, topics rise and fall, and users drift. What a user does with a pin in a
slate follows the examination hypothesis of unbiased learning to rank (Joachims et al., WSDM 2017): a position is
examined with a probability that falls with it, and only an examined pin is clicked, saved or hidden.

Shape legend: N rows, U users, P pins, L latent dimensions, F features, T topics.
"""

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.errors import InputError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

NUM_PROJECTIONS = 4
NUM_TOPICS = 32
EXAMINATION_EXPONENT = 0.4
_BIRTH, _DRIFT, _FRESH = range(3)


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """A synthetic log; two configs that differ in `num_days` alone agree on the days they share.

    Attributes:
        first_day: First UTC day.
        num_days: Days to draw.
        num_users: Users, ids from 0.
        num_pins: Pins that are there before the first day, ids from 0.
        num_fresh_pins: Pins born on each day, the first one too; they take the next ids.
        rows_per_day: Impressions a day, rounded down to whole slates.
        slate_size: Pins of a slate.
        history_length: Most recent engagements that a row knows.
        latent_dim: Dimensions of the latent space.
        taste: How much the match of user and pin weighs in a click and in a save, beside quality and chance.
        seed: Seed of everything.
        with_images: Write a thumbnail of each pin.
        with_text: Write a title of each pin.
    """

    first_day: date = date(2024, 1, 1)
    num_days: int = 30
    num_users: int = 20_000
    num_pins: int = 40_000
    num_fresh_pins: int = 400
    rows_per_day: int = 30_000
    slate_size: int = 10
    history_length: int = 20
    latent_dim: int = 8
    taste: float = 1.4
    seed: int = 0
    with_images: bool = True
    with_text: bool = True

    def __post_init__(self) -> None:
        least = {
            "num_days": 1,
            "num_users": 1,
            "num_pins": 4 * self.slate_size,
            "num_fresh_pins": 0,
            "rows_per_day": self.slate_size,
            "slate_size": 1,
            "history_length": 1,
            "latent_dim": NUM_PROJECTIONS,
            "taste": 0,
            "seed": 0,
        }
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise InputError(f"synthetic log: {name} is {getattr(self, name)}; set it to {smallest} or more")

    @property
    def num_pins_ever(self) -> int:
        """Pins by the end of the last day."""
        return self.num_pins + self.num_days * self.num_fresh_pins


class Probabilities(NamedTuple):
    """What happens to an examined pin, float64 (N,) each: clicked; saved once clicked; hidden unless clicked."""

    click: Doubles
    save_if_clicked: Doubles
    hide_unless_clicked: Doubles


class World:
    """The latent truth on one day; `advance` moves it to the next. It begins on the first day of the log."""

    def __init__(self, config: SyntheticConfig) -> None:
        rng = np.random.default_rng((config.seed, _BIRTH))
        num_users, num_pins, dim = config.num_users, config.num_pins_ever, config.latent_dim
        self._config = config
        self.day_index = -1
        self.num_pins = 0
        self._user_latents_UL = _normal(rng, num_users, dim)
        self._user_bias_U = 0.4 * _normal(rng, num_users)
        self._user_noise_UF = _normal(rng, num_users, NUM_PROJECTIONS)
        self.user_activity_U = np.exp(_normal(rng, num_users)).astype(np.float64)
        self._topics_TL = _normal(rng, NUM_TOPICS, dim)
        self._topic_trend_T = 0.5 * _normal(rng, NUM_TOPICS)
        self._projection_LF = _normal(rng, dim, NUM_PROJECTIONS) / np.float32(np.sqrt(dim))
        # A save asks for more than a click: other dimensions of the same taste weigh more in it.
        self._save_weight_L = np.where(np.arange(dim) % 2, 1.35, 0.4).astype(np.float32)
        self._pin_latents_PL = np.empty((num_pins, dim), np.float32)
        self._pin_quality_P = np.empty(num_pins, np.float32)
        self._pin_noise_PF = np.empty((num_pins, NUM_PROJECTIONS), np.float32)
        self._pin_topic_P = np.empty(num_pins, np.int64)
        self._pin_popularity_P = np.empty(num_pins, np.float64)
        self._pin_born_P = np.empty(num_pins, np.float64)
        self._bear_pins(rng, config.num_pins, born=-rng.exponential(30.0, config.num_pins))
        self.advance()

    def advance(self) -> None:
        """Moves to the next day: users drift, topics rise and fall, fresh pins are born."""
        self.day_index += 1
        rng = np.random.default_rng((self._config.seed, _DRIFT, self.day_index))
        step = np.float32(0.05)
        self._user_latents_UL *= np.sqrt(1 - step**2)
        self._user_latents_UL += step * _normal(rng, *self._user_latents_UL.shape)
        self._topic_trend_T += 0.15 * _normal(rng, NUM_TOPICS) - 0.05 * self._topic_trend_T
        rng = np.random.default_rng((self._config.seed, _FRESH, self.day_index))
        num_fresh = self._config.num_fresh_pins
        self._bear_pins(rng, num_fresh, born=np.full(num_fresh, float(self.day_index)))

    def exposure_weights(self) -> Doubles:
        """How often each living pin is shown, relative to each other: float64 (P,)."""
        living = slice(self.num_pins)
        freshness = 1.0 + 4.0 * np.exp(-self.pin_age_days(np.arange(self.num_pins)) / 2.0)
        trend = np.exp(self._topic_trend_T[self._pin_topic_P[living]])
        weights: Doubles = self._pin_popularity_P[living] * trend * freshness
        return weights

    def probabilities(self, users: Ints, pins: Ints) -> Probabilities:
        """What happens when `pins` (N,) are examined by `users` (N,) today."""
        match_NL = self._user_latents_UL[users] * self._pin_latents_PL[pins]
        root = np.sqrt(self._config.latent_dim)
        affinity = match_NL.sum(axis=1, dtype=np.float64) / root
        save_affinity = (match_NL @ self._save_weight_L).astype(np.float64) / root
        appeal = self._pin_quality_P[pins] + self._user_bias_U[users]
        return Probabilities(
            click=_sigmoid(self._config.taste * affinity + appeal - 1.2),
            save_if_clicked=_sigmoid(self._config.taste * save_affinity + 0.5 * appeal - 0.6),
            hide_unless_clicked=0.02 * _sigmoid(-2.0 * affinity - 1.0),
        )

    def save_probability(self, users: Ints, pins: Ints, positions: Ints) -> Doubles:
        """Probability that a row is saved, float64 (N,): examined, then clicked, then saved."""
        truth = self.probabilities(users, pins)
        return examination(positions) * truth.click * truth.save_if_clicked

    def user_view(self, users: Ints) -> Floats:
        """A weak and noisy view of who `users` (N,) are today: (N, NUM_PROJECTIONS)."""
        return self._user_latents_UL[users] @ self._projection_LF + self._user_noise_UF[users]

    def pin_view(self, pins: Ints) -> Floats:
        """A weak and noisy view of what `pins` (N,) are: (N, NUM_PROJECTIONS)."""
        return self._pin_latents_PL[pins] @ self._projection_LF + self._pin_noise_PF[pins]

    def pin_age_days(self, pins: Ints) -> Doubles:
        """Days since `pins` (N,) were born: 0 today."""
        return self.day_index - self._pin_born_P[pins]

    def pin_latents(self, pins: Ints) -> Floats:
        """Where `pins` (N,) lie in the latent space: (N, L)."""
        return self._pin_latents_PL[pins]

    def _bear_pins(self, rng: np.random.Generator, count: int, born: Doubles) -> None:
        new = slice(self.num_pins, self.num_pins + count)
        topics = rng.integers(NUM_TOPICS, size=count)
        self._pin_topic_P[new] = topics
        own = _normal(rng, count, self._config.latent_dim)
        self._pin_latents_PL[new] = np.sqrt(0.7) * self._topics_TL[topics] + np.sqrt(0.3) * own
        self._pin_quality_P[new] = 0.6 * _normal(rng, count)
        self._pin_noise_PF[new] = _normal(rng, count, NUM_PROJECTIONS)
        self._pin_popularity_P[new] = np.exp(1.3 * rng.standard_normal(count))
        self._pin_born_P[new] = born
        self.num_pins += count


def examination(positions: Ints) -> Doubles:
    """The logged propensity: probability that a position, counted from 0, is looked at; float64, 1.0 at the top."""
    return np.asarray((positions + 1.0) ** -EXAMINATION_EXPONENT, dtype=np.float64)


def _normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape, dtype=np.float32)


def _sigmoid(values: Doubles) -> Doubles:
    return np.asarray(1.0 / (1.0 + np.exp(-values)), dtype=np.float64)
