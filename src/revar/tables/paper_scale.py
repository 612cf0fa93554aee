"""The paper's own recipe: its data, networks, 300 epochs and five seeds.

What it does not say, and what cannot be had, is in docs/tables.md.
"""

from __future__ import annotations

from dataclasses import replace

from revar.library.classes import CORRUPTIONS, SEVERITIES
from revar.tables.cell import DataChoice
from revar.tables.scale import Place, Scale, Setting

NOT_FOUND = "no such labels were found, and the code of PLEX has none"
"""Of ImageNet-100H, which is said to be from the PLEX paper; so is CIFAR-100H."""
IMAGENET_C = tuple(f"imagenet-c:{name}-{degree}" for name in CORRUPTIONS for degree in SEVERITIES)
"""All of it: the paper names fifteen kinds at various severities, and leaves none out."""
_IMAGE = (("batch_size", "128"), ("learning_rate", "0.01"), ("weight_decay", "1e-4"))
_DR = (("batch_size", "64"), ("learning_rate", "0.003"), ("weight_decay", "1e-4"))
_TUNED = (("layer_decay", "0.75"), ("pretrained", "timm"))
# PLEX itself is published for another framework; the same kind of model stands in.
_LARGE = "vit_large_patch16_224.augreg_in21k"
# Patches of 16 px would cut an image of 32 px into four.
_LARGE_FOR_SMALL_IMAGES = "vit_base_patch8_224.augreg_in21k"


def _image(data: DataChoice, backbone: str = "resnet50", scorer: str = "resnet18") -> Setting:
    return Setting(data=data, backbone=backbone, epochs=300, settings=_IMAGE, scorer=scorer)


def _fine_tuned(setting: Setting, backbone: str = _LARGE) -> Setting:
    return replace(setting, backbone=backbone, settings=(*setting.settings, *_TUNED))


def paper_scale() -> Scale:
    """Everything that the paper says, and nothing smaller."""
    dr = Setting(
        data=DataChoice(name="eyepacs", tests=("test", "aptos")), backbone="resnet50", epochs=300,
        settings=_DR, scorer="resnet18",
    )  # fmt: skip
    small_images = {"backbone": "resnet50-cifar", "scorer": "resnet18-cifar"}
    cifar = _image(DataChoice(name="cifar100"), **small_images)
    ten = _image(DataChoice(name="cifar10"), **small_images)
    noisy = replace(cifar, data=replace(cifar.data, label_noise="instance:0.2"))
    # Runs of 300 epochs: every column about them shares them, so that all test sets are theirs.
    shifted = ("imagenet-a", "imagenet-r", *IMAGENET_C)
    thousand = _image(DataChoice(name="imagenet-1k", tests=("test", *shifted)))
    fine_tuned = _fine_tuned(dr)
    return Scale(
        name="paper",
        seeds=5,
        places={
            "eyepacs": Place(setting=dr),
            "aptos": Place(setting=dr, tests=("aptos",)),
            "cifar100": Place(setting=cifar),
            "imagenet-100": Place(
                setting=_image(DataChoice(name="imagenet-100"), backbone="vgg16_bn")
            ),
            "imagenet-1k": Place(setting=thousand),
            "imagenet-a": Place(setting=thousand, tests=("imagenet-a",)),
            "imagenet-c": Place(setting=thousand, tests=IMAGENET_C),
            "imagenet-r": Place(setting=thousand, tests=("imagenet-r",)),
            "inst-cifar100": Place(setting=noisy),
            "clothing1m": Place(setting=_image(DataChoice(name="clothing1m"))),
            # Training, validation and test sets are each of another domain.
            "camelyon17": Place(setting=_image(DataChoice(name="camelyon17", meta="val"))),
            "iwildcam": Place(setting=_image(DataChoice(name="iwildcam", meta="val"))),
            "cifar100h": Place(
                setting=ten, soft="cifar10h",
                stands_for="CIFAR-10H, which the code of PLEX evaluates; no CIFAR-100H was found",
            ),
        },
        scorers={"resnet18": "resnet18", "resnet32": "resnet34", "resnet50": "resnet50"},
        nets={
            "wrn": "wrn-28-10", "vit-small": "vit_small_patch16_224", "resnet101": "resnet101"
        },
        # Made for 32 px, it keeps images at full size through a third of its layers.
        net_settings={"wrn": (("micro_batch", "8"),)},
        pretrained={
            "eyepacs": fine_tuned,
            "aptos": fine_tuned,
            "cifar100": _fine_tuned(cifar, _LARGE_FOR_SMALL_IMAGES),
            "imagenet-c": _fine_tuned(thousand),
            "cifar100h": _fine_tuned(ten, _LARGE_FOR_SMALL_IMAGES),
        },
        left_out={
            "deepdrid": "the paper does not have it",
            "imagenet-100h": NOT_FOUND,
        },
    )  # fmt: skip
