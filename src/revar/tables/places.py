"""Columns: the data a column of the paper stands for, at each scale.

``paper`` is the paper's own recipe (`revar.tables.paper_scale`). ``small`` asks the same question
of data that fits one GPU for half an hour; what stands in for what is in docs/results.md. ``smoke``
is generated data.
"""

from __future__ import annotations

from dataclasses import replace

from revar.errors import InputError, unknown
from revar.tables.cell import DataChoice
from revar.tables.paper_scale import NOT_FOUND, paper_scale
from revar.tables.scale import Place, Scale, Setting

__all__ = ["SCALES", "Place", "Scale", "Setting", "scale_of"]

_CORRUPTIONS = ("gaussian_noise:3", "defocus_blur:3", "fog:3", "contrast:3", "jpeg_compression:3")


def _smoke() -> Scale:
    settings = (("augment", "none"), ("batch_size", "16"))
    tests = ("test", "shifted", "test+fog:3", "test+contrast:3")
    data = DataChoice(name="generated", tests=tests)
    plain = Setting(data=data, backbone="mlp", epochs=4, settings=settings)
    inside = Place(setting=plain, soft="generated")
    outside = Place(setting=plain, tests=("shifted",))
    noisy = replace(plain, data=replace(data, label_noise="symmetric:0.3"))
    shifted = replace(plain, data=replace(data, meta="val"))
    places = {
        "eyepacs": inside, "aptos": outside, "deepdrid": outside, "cifar100": inside,
        "imagenet-100": inside, "imagenet-1k": inside, "imagenet-a": outside,
        "imagenet-r": outside,
        "imagenet-c": Place(setting=plain, tests=("test+fog:3", "test+contrast:3")),
        "inst-cifar100": Place(setting=noisy), "clothing1m": Place(setting=noisy),
        "camelyon17": Place(setting=shifted, tests=("shifted",)),
        "iwildcam": Place(setting=shifted, tests=("shifted",)),
        "cifar100h": inside, "imagenet-100h": inside,
    }  # fmt: skip
    told = {name: replace(place, stands_for="generated pictures") for name, place in places.items()}
    return Scale(
        name="smoke",
        seeds=2,
        places=told,
        scorers={"resnet18": "linear", "resnet32": "mlp"},
        nets={"wrn": "perceptron", "vit-small": "perceptron", "resnet101": "mlp"},
        pretrained=dict.fromkeys(told, replace(plain, backbone="perceptron")),
    )


LITE0 = "REVAR_DATA/weights_efficientnet_lite0/efficientnet-lite0-57934424.pth"


def _small() -> Scale:
    # From scratch nothing is learned from 3,500 retinal images, and little from 1,300 photos.
    tuned = (("batch_size", "64"), ("layer_decay", "0.75"), ("pretrained", LITE0))
    lite0 = "tf_efficientnet_lite0"
    dr = Setting(
        data=DataChoice(name="eyepacs", tests=("test", "aptos", "deepdrid")),
        backbone=lite0, epochs=12, settings=tuned,
    )  # fmt: skip
    # Three countries: trained in one, validated in another, tested in the third.
    abroad = replace(dr, data=replace(dr.data, tests=("test", "deepdrid"), meta="aptos"))
    settings = (("batch_size", "128"),)
    corrupted = tuple(f"test+{corruption}" for corruption in _CORRUPTIONS)
    cifar = Setting(
        data=DataChoice(name="cifar10", train=20_000, tests=("test", *corrupted, "hard")),
        backbone="resnet18-cifar", epochs=20, settings=settings,
    )  # fmt: skip
    tiny = Setting(
        data=DataChoice(name="tiny-imagenet-100"), backbone="resnet18", epochs=30, settings=settings
    )
    pacs = Setting(
        data=DataChoice(name="pacs", tests=("test", "art_painting")), backbone=lite0, epochs=12,
        settings=tuned,
    )  # fmt: skip
    noisy = replace(cifar, data=replace(cifar.data, tests=("test",), label_noise="instance:0.2"))
    human = replace(cifar, data=replace(cifar.data, name="cifar10n-worst", tests=("test",)))
    few = replace(
        cifar, data=replace(cifar.data, train=5_000, tests=("test", *corrupted)), epochs=15
    )
    inside = Place(setting=few, stands_for="CIFAR-10, 5,000 images")
    outside = replace(
        inside, tests=corrupted, stands_for="CIFAR-10, 5,000 images, corrupted when tested"
    )
    # Images far from those the weights were learned on: all layers, and statistics of their own.
    cifar_tuned = replace(
        cifar, backbone=lite0, epochs=10,
        settings=(*settings, ("keep_statistics", "false"), ("pretrained", LITE0)),
    )  # fmt: skip
    return Scale(
        name="small",
        seeds=3,
        control_seeds=1,
        places={
            "eyepacs": Place(setting=dr, stands_for="6,440 images, 96 px"),
            "aptos": Place(setting=dr, tests=("aptos",), stands_for="96 px"),
            "deepdrid": Place(setting=dr, tests=("deepdrid",), stands_for="DeepDRiD, 96 px"),
            "cifar100": Place(setting=cifar, stands_for="CIFAR-10, 20,000 images", soft="cifar10h"),
            "imagenet-100": Place(setting=tiny, stands_for="Tiny ImageNet, 100 classes"),
            "imagenet-a": Place(
                setting=cifar, tests=("hard",),
                stands_for="CIFAR-10 test images that a ResNet-56 gets wrong",
            ),
            "imagenet-c": Place(
                setting=cifar, tests=corrupted,
                stands_for="CIFAR-10, five corruptions at severity 3",
            ),
            "imagenet-r": Place(
                setting=pacs, tests=("art_painting",), stands_for="PACS, photo to art"
            ),
            "inst-cifar100": Place(setting=noisy, stands_for="CIFAR-10, instance noise 0.2"),
            "clothing1m": Place(setting=human, stands_for="CIFAR-10N, worst labels"),
            "camelyon17": Place(
                setting=abroad, tests=("deepdrid",),
                stands_for="EyePACS to DeepDRiD, validated on APTOS",
            ),
            "iwildcam": Place(
                setting=pacs, tests=("art_painting",),
                stands_for="PACS, photo to art, validated on photos",
            ),
            "cifar100h": Place(setting=cifar, stands_for="CIFAR-10H", soft="cifar10h"),
        },
        scorers={"resnet18": "resnet18", "resnet32": "resnet34", "resnet50": "resnet50"},
        nets={"wrn": "wrn-28-10", "vit-small": "vit-cifar", "resnet101": "resnet50-cifar"},
        pretrained={
            **dict.fromkeys(("eyepacs", "aptos"), dr),
            **dict.fromkeys(("cifar100", "imagenet-c", "cifar100h"), cifar_tuned),
        },
        scratch={"eyepacs": inside, "aptos": outside, "imagenet-100": inside},
        left_out={
            "imagenet-1k": "nothing stands in for it at this size",
            "imagenet-100h": NOT_FOUND,
        },
    )  # fmt: skip


SCALES = {"smoke": _smoke, "small": _small, "paper": paper_scale}


def scale_of(name: str, seeds: int | None = None) -> Scale:
    """A scale by its name, with another number of seeds where one is asked for.

    Raises:
        InputError: no such scale, or no seeds.
    """
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    scale = SCALES[name]()
    if seeds is None:
        return scale
    if seeds < 1:
        raise InputError(f"--seeds must be at least 1, it is {seeds}")
    return replace(scale, seeds=seeds, control_seeds=None)
