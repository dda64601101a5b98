"""stable-baselines3: policies, traced as its documentation exports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from catalog import Calls, Model
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import Tensor, nn
from ways import Args, Trace

_SENSORS = spaces.Box(-1, 1, (6,), np.float32)
_PIXELS = spaces.Box(0, 255, (3, 36, 36), np.uint8)
_TORQUES = spaces.Box(-1, 1, (2,), np.float32)
_KEYS = spaces.Discrete(4)


class _Deterministic(nn.Module):
    """What an agent does, and how it values it."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.policy(seen, deterministic=True)


class _Actor(nn.Module):
    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.actor = policy.actor

    def forward(self, seen: Tensor) -> Tensor:
        return self.actor(seen)


class _Latent(nn.Module):
    """The actor's mean, as the exported SAC policies have it."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.actor = policy.actor

    def forward(self, seen: Tensor) -> Tensor:
        return torch.tanh(self.actor.mu(self.actor.latent_pi(seen)))


def _rate(_: float) -> float:
    return 1e-3


def _sensed(count: int) -> Args:
    return (torch.rand(count, 6),)


def _pixels(count: int) -> Args:
    return (torch.randint(0, 255, (count, 3, 36, 36), dtype=torch.uint8),)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "PPO": (lambda: _Deterministic(ActorCriticPolicy(_SENSORS, _TORQUES, _rate)), _sensed),
    "PPO, discrete": (lambda: _Deterministic(ActorCriticPolicy(_SENSORS, _KEYS, _rate)), _sensed),
    "PPO, images": (lambda: _Deterministic(ActorCriticCnnPolicy(_PIXELS, _KEYS, _rate)), _pixels),
    "DQN": (lambda: DQNPolicy(_SENSORS, _KEYS, _rate).q_net, _sensed),
    "TD3": (lambda: _Actor(TD3Policy(_SENSORS, _TORQUES, _rate)), _sensed),
    "SAC": (lambda: _Latent(SACPolicy(_SENSORS, _TORQUES, _rate)), _sensed),
}


def models() -> Iterator[Model]:
    for name, (build, args) in _MODELS.items():
        calls = Calls(args(2), (args(1), args(4)))
        yield Model(
            "stable_baselines3", name, "robots", build, lambda _, calls=calls: [calls], Trace()
        )
