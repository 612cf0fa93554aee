from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from revar.data.augment import Augment, resolve


def views(image: Tensor, pad: int, *, flip: bool) -> Tensor:
    """[views, channels, h, w] every shift of an image and of its mirror, by slicing."""
    _, height, width = image.shape
    sources = [image, image.flip(-1)] if flip else [image]
    return torch.stack(
        [
            F.pad(source, (pad,) * 4)[:, top : top + height, left : left + width]
            for source in sources
            for top in range(2 * pad + 1)
            for left in range(2 * pad + 1)
        ]
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(("pad", "flip"), [(1, False), (2, True), (0, True)])
def test_every_image_is_one_of_its_shifts_and_mirrors_and_all_of_them_occur(
    dtype: torch.dtype, pad: int, flip: bool
) -> None:
    n = 4000
    image = torch.randint(1, 256, (3, 5, 6)).to(dtype)
    expected = views(image, pad, flip=flip)
    got = Augment(pad=pad, flip=flip)(image.expand(n, -1, -1, -1))
    assert got.dtype == dtype
    assert got.shape == (n, 3, 5, 6)
    same = (got[:, None] == expected[None]).flatten(2).all(-1)
    assert (same.sum(1) == 1).all()
    # All views are equally likely: four deviations of a binomial.
    share = 1 / len(expected)
    frequency = same.double().mean(0)
    assert (frequency - share).abs().max() < 4.5 * (share * (1 - share) / n) ** 0.5


def test_every_image_of_a_batch_is_augmented_by_itself() -> None:
    images = torch.arange(1, 9).view(8, 1, 1, 1).expand(8, 2, 4, 4).float()
    got = Augment(pad=1, flip=True)(images)
    for number, image in zip(range(1, 9), got, strict=True):
        assert set(image.unique().tolist()) <= {0.0, float(number)}
    zero = [(image == 0).float() for image in got]
    assert any(not torch.equal(zero[0], other) for other in zero[1:])


def test_no_augmentation_hands_the_images_through_and_draws_nothing() -> None:
    images = torch.rand(4, 1, 5, 5)
    before = torch.get_rng_state()
    assert Augment()(images) is images
    assert torch.equal(torch.get_rng_state(), before)


def test_the_stored_images_are_left_alone() -> None:
    images = torch.rand(16, 3, 6, 6)
    kept = images.clone()
    Augment(pad=2, flip=True)(images)
    assert torch.equal(images, kept)


def test_the_default_generator_decides() -> None:
    images = torch.rand(16, 3, 6, 6)
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(Augment(pad=2, flip=True)(images))
    assert torch.equal(*results)
    assert not torch.equal(Augment(pad=2, flip=True)(images), results[0])


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("auto", (3, 32, 32), Augment(pad=4, flip=True)),
        ("auto", (1, 28, 28), Augment(pad=3, flip=False)),
        ("auto", (1, 8, 8), Augment()),
        ("auto", (3, 15, 40), Augment(pad=0, flip=True)),
        ("auto", (3, 96, 64), Augment(pad=8, flip=True)),
        ("auto", (12,), Augment()),
        ("none", (3, 32, 32), Augment()),
        ("shift", (3, 32, 32), Augment(pad=4)),
        ("shift", (1, 4, 4), Augment(pad=1)),
        ("shift+flip", (1, 28, 28), Augment(pad=3, flip=True)),
        ("shift+flip", (12,), Augment()),
    ],
)
def test_names_mean_what_suits_the_inputs(
    name: str, shape: tuple[int, ...], expected: Augment
) -> None:
    assert resolve(name, shape) == expected
