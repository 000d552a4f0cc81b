"""The updates of DAgger on image patches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from an_control.learning.dagger.image_patches.batches import Batch
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.dagger.image_patches.student import VisionStudent


def new_student(settings: PatchDaggerSettings, seed: int) -> VisionStudent:
    """A student whose first weights follow from the seed."""
    student = VisionStudent(settings.student, seed)
    with torch.no_grad():
        student.array("key.change").mul_(settings.key_gain)
        if settings.student.attention != "pma":
            student.array("query.weight").mul_(settings.query_gain)
        student.array("key.action").zero_()
    return student


def update(
    student: VisionStudent,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    units: Tensor,
    settings: PatchDaggerSettings,
) -> tuple[float, Tensor]:
    """One step down the gradient, through this batch's steps and not through those before.

    `units` (B, H) are what the rows' memories hold; returns the loss, and these after the batch.
    """
    device = student.table.device
    patches, still, numbers, previous, labels, counts, begins = (
        torch.from_numpy(part).to(device) for part in (*batch.seen, *batch[1:])
    )
    units = units * ~begins[:, None]
    common = previous.new_zeros(len(patches), settings.student.actions)
    message = student.message(patches, common, counts=numbers, still=still)
    message = message.unflatten(0, labels.shape[:2])
    scores, units = student.choose(message, previous, units)
    loss = _loss(scores[counts], labels[counts], settings)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimiser.step()
    return loss.item(), units.detach()


def _loss(scores: Tensor, labels: Tensor, settings: PatchDaggerSettings) -> Tensor:
    if not settings.student.choice:
        scale = scores.new_tensor(settings.loss_scale)
        error = functional.smooth_l1_loss(scores.tanh(), labels, reduction="none", beta=0.3)
        return (error * scale).mean()
    chosen = labels.argmax(-1)
    weight = None
    if settings.balance:
        seen = torch.bincount(chosen, minlength=scores.shape[-1]).clamp(min=1)
        weight = (len(chosen) / seen) ** settings.balance
    return functional.cross_entropy(scores, chosen, weight)
