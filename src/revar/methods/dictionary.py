"""What FSR remembers: how much each training example is worth, and which ones stand for all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from revar.functional import follow_flat_state
from revar.rows import Rows


class Dictionary(Rows):
    """Values of all training examples, and the most valuable of every class.

    Attributes:
        values: [N] running mean of what a look-ahead says of each example, see `FSR.value`.
        chosen: [C, k] positions in the training split of the examples in the dictionary.
    """

    values: Tensor
    chosen: Tensor

    def __init__(self, n_train: int, n_classes: int, per_class: int) -> None:
        super().__init__()
        self.add_rows("values", n_train)
        self.register_buffer("chosen", torch.zeros(n_classes, per_class, dtype=torch.int64))

    @torch.no_grad()
    def observe(self, index: Tensor, value: Tensor, momentum: float) -> None:
        """``v <- momentum v + (1 - momentum) value`` at these positions, all different."""
        new = value.to(self.values.dtype)
        self.change("values", index, lambda old: old.lerp(new, 1 - momentum))

    @torch.no_grad()
    def refill(self, labels: Tensor) -> None:
        """Take the most valuable examples of every class.

        A class with too few repeats them. One with none, after an unlucky split, takes the most
        valuable of all classes: the dictionary must not have holes.

        Args:
            labels: [N] class numbers of the training split.
        """
        n_classes, k = self.chosen.shape
        order = self.whole("values").argsort(descending=True, stable=True)
        by_value = labels[order]
        rank = torch.arange(k, device=order.device)
        for label in range(n_classes):
            own = order[by_value == label]
            pool = own if len(own) else order
            self.chosen[label] = pool[rank % len(pool)]

    def draw(self, per_class: int) -> Tensor:
        """[C * per_class] positions, as many of every class, all different within a class."""
        keys = torch.rand(self.chosen.shape, device=self.chosen.device)
        columns = keys.argsort(dim=1)[:, :per_class]
        return self.chosen.gather(1, columns).flatten()


class PseudoLabels(Rows):
    """Running logits of all training examples, from which FSR-full makes soft labels.

    Attributes:
        logits: [N, C], zero before the first visit.
    """

    logits: Tensor

    def __init__(self, n_train: int, n_classes: int) -> None:
        super().__init__()
        self.add_rows("logits", n_train, n_classes)

    @torch.no_grad()
    def visit(self, index: Tensor, logits: Tensor, momentum: float) -> Tensor:
        """``z <- momentum z / rms(z) + (1 - momentum) logits``; the z / rms(z) from before.

        The mean square is taken over the batch, so that soft labels are as sharp early as late.

        Args:
            index: [n] positions, all different.
            logits: [n, C] of the training pass.
            momentum: of the running logits.

        Returns:
            [n, C] logits of the soft labels.
        """
        kept = self.read("logits", index)
        kept = kept * (kept.square().mean() + 1e-8).rsqrt()
        self.write("logits", index, kept.lerp(logits.to(kept.dtype), 1 - momentum))
        return kept


class Average(nn.Module):
    """A running mean of a network's weights and statistics.

    Attributes:
        flat: [P] see `revar.functional.flat_state`.
    """

    flat: Tensor

    def __init__(self, n_weights: int) -> None:
        super().__init__()
        self.register_buffer("flat", torch.zeros(n_weights))

    def follow(self, net: nn.Module, step: int, momentum: float) -> None:
        """Move towards new weights; sooner in the first steps, the very first sets the mean."""
        follow_flat_state(net, self.flat, 1 - min(momentum, step / (step + 9)))


class Remembered(nn.Module):
    """All of it; what the core method does not need is not there."""

    def __init__(
        self,
        dictionary: Dictionary,
        pseudo_labels: PseudoLabels | None,
        average: Average | None,
    ) -> None:
        super().__init__()
        self.dictionary = dictionary
        self.pseudo_labels = pseudo_labels
        self.average = average
