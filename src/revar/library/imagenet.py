"""ImageNet, parts of it, and the test sets that shift it."""

from __future__ import annotations

from revar.library.specs import DatasetSpec, Form

_PAGE = "image-net.org"
_TERMS = "ImageNet terms: non-commercial research"
_FOLDERS = "revar.data.readers:class_folders"
_COUNT = "revar.data.counts_files:folders"
_RUSSAKOVSKY = "Russakovsky et al. 2015"


def _shifted(
    letter: str, what: str, n_classes: int, size: int, page: str, licence: str, citation: str
) -> DatasetSpec:
    return DatasetSpec(
        name=f"imagenet-{letter}",
        summary=f"{what}, a test domain of imagenet-1k",
        citation=citation,
        n_classes=n_classes,
        forms=(
            Form(
                place=f"imagenet-{letter}",
                layout="<WordNet number>/<image>, as it unpacks",
                reader=_FOLDERS,
                parts={"test": "."},
                sizes={"test": size},
                counter=_COUNT,
            ),
        ),
        obtain=page,
        licence=licence,
    )


SPECS: tuple[DatasetSpec, ...] = (
    DatasetSpec(
        name="imagenet-1k",
        summary="photos of a thousand things, read at 224x224 px; its validation part as test",
        citation=_RUSSAKOVSKY,
        n_classes=1_000,
        forms=(
            Form(
                place="imagenet",
                layout="train/<WordNet number>/<image> and val/<WordNet number>/<image>",
                reader=_FOLDERS,
                parts={"train": "train", "test": "val"},
                sizes={"train": 1_281_167, "test": 50_000},
                counter=_COUNT,
            ),
        ),
        obtain=_PAGE,
        licence=_TERMS,
        paper={"train": 1_280_000, "val": 50_000, "test": 100_000},
    ),
    DatasetSpec(
        name="imagenet-100",
        summary="a hundred classes of imagenet-1k",
        citation=f"Tian et al. 2020; {_RUSSAKOVSKY}",
        n_classes=100,
        forms=(
            Form(
                place="imagenet100",
                layout="train/<WordNet number>/<image> and val/<WordNet number>/<image>",
                reader=_FOLDERS,
                parts={"train": "train", "test": "val"},
                sizes={"test": 5_000},
                counter=_COUNT,
            ),
            Form(
                place="imagenet",
                layout="the folders of imagenet-1k, of which its hundred classes are read",
                reader="revar.data.imagenet:imagenet100",
                parts={"train": "train", "test": "val"},
                sizes={"test": 5_000},
                counter="revar.data.counts_files:imagenet100",
            ),
        ),
        obtain=_PAGE,
        licence=_TERMS,
        paper={"train": 130_000, "test": 5_000},
        paper_side=256,
    ),
    _shifted(
        "a",
        "photos that a ResNet-50 gets wrong",
        200,
        7_500,
        "github.com/hendrycks/natural-adv-examples",
        "MIT (the list); photos as their owners say",
        "Hendrycks et al. 2021 (natural adversarial examples)",
    ),
    _shifted(
        "r",
        "paintings, toys, cartoons and other renditions",
        200,
        30_000,
        "github.com/hendrycks/imagenet-r",
        "MIT (the list); pictures as their owners say",
        "Hendrycks et al. 2021 (the many faces of robustness)",
    ),
    DatasetSpec(
        name="imagenet-c",
        summary="fifteen corruptions at five severities of the test images of imagenet-1k",
        citation="Hendrycks and Dietterich 2019",
        n_classes=1_000,
        forms=(
            Form(
                place="imagenet-c",
                layout="<corruption>/<severity 1..5>/<WordNet number>/<image>, as it unpacks",
                reader="revar.data.imagenet:corrupted",
                sizes={"test": 3_750_000},
                counter="revar.data.counts_files:imagenet_c",
            ),
        ),
        obtain="zenodo.org/records/2235448",
        licence="CC BY 4.0",
    ),
    DatasetSpec(
        name="tiny-imagenet-100",
        summary="photos of 64x64 px, every second class of Tiny ImageNet",
        citation="Le and Yang 2015",
        n_classes=100,
        forms=(
            Form(
                place="tiny_imagenet_100",
                layout="images.tar.xz with train/<wnid>/ and val/<wnid>/, and classes.csv",
                reader="revar.data.imagenet:tiny_packed",
                side=64,
                sizes={"train": 10_000, "test": 5_000},
                counter="revar.data.counts:tiny_packed",
            ),
            Form(
                place="tiny-imagenet-200",
                layout="as it unpacks: train/<wnid>/images, val/images, val_annotations.txt",
                reader="revar.data.imagenet:tiny_official",
                side=64,
                sizes={"train": 50_000, "test": 5_000},
                counter="revar.data.counts_files:tiny_official",
            ),
        ),
        obtain="cs231n.stanford.edu/tiny-imagenet-200.zip",
        licence=_TERMS,
    ),
)
