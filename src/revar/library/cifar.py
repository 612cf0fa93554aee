"""CIFAR-10 and -100, with the labels of people: CIFAR-N and CIFAR-10H."""

from __future__ import annotations

from revar.library.specs import DatasetSpec, Form

_PAGE = "www.cs.toronto.edu/~kriz/cifar.html"
_FREE = "none stated; free for research by custom"
_N_PAGE = "github.com/UCSC-REAL/cifar-10-100n"
_SIZES = {"train": 50_000, "test": 10_000}
_AS_UNPACKED = "as it unpacks"
_TILED = (
    "train_1.webp ... train_5.webp and test_batch.webp of 10,000 tiles of 32 px each, and "
    "labels.npz with train and test"
)


def _form(place: str, reader: str, layout: str = _AS_UNPACKED, counter: str = "") -> Form:
    """A form whose counter is called as its reader, unless told."""
    return Form(
        place=place,
        layout=layout,
        reader=f"revar.data.cifar:{reader}",
        side=32,
        sizes=_SIZES,
        counter=f"revar.data.counts_arrays:{counter or reader}",
    )


def _people(name: str, who: str, base: str, array: str, file: str) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        summary=f"{base}, train labels by {who}",
        citation="Wei et al. 2022 (CIFAR-N); Krizhevsky 2009",
        n_classes=10 if base == "cifar10" else 100,
        forms=(
            _form(
                f"cifar_human_labels/{file}",
                "with_human_labels",
                f"the authors' arrays clean_label and {array}",
                "people",
            ),
        ),
        base=base,
        options={"array": array},
        obtain=_N_PAGE,
        licence="CC BY-NC 4.0",
    )


SPECS: tuple[DatasetSpec, ...] = (
    DatasetSpec(
        name="cifar10",
        summary="photos of 32x32 px",
        citation="Krizhevsky 2009",
        n_classes=10,
        forms=(
            _form("cifar10", "cifar10_tiled", _TILED),
            _form("cifar-10-batches-bin", "cifar10_binary"),
            _form("cifar-10-batches-py", "cifar10_python"),
        ),
        obtain=_PAGE,
        licence=_FREE,
    ),
    DatasetSpec(
        name="cifar100",
        summary="photos of 32x32 px",
        citation="Krizhevsky 2009",
        n_classes=100,
        forms=(
            _form("cifar-100-binary", "cifar100_binary"),
            _form("cifar-100-python", "cifar100_python"),
        ),
        obtain=_PAGE,
        licence=_FREE,
        paper={"train": 50_000, "test": 10_000},
        paper_side=28,
    ),
    *(
        _people(f"cifar10n-{kind}", who, "cifar10", array, "cifar10n.npz")
        for kind, array, who in (
            ("aggregate", "aggre_label", "the majority of three people (9 % wrong)"),
            ("random1", "random_label1", "one of three people (17 % wrong)"),
            ("random2", "random_label2", "another of them (18 % wrong)"),
            ("random3", "random_label3", "the third of them (18 % wrong)"),
            ("worst", "worse_label", "any of the three who erred (40 % wrong)"),
        )
    ),
    _people("cifar100n", "one person (40 % wrong)", "cifar100", "noisy_label", "cifar100n.npz"),
    DatasetSpec(
        name="cifar10h",
        summary="cifar10; about fifty people's answers for every test image as soft labels",
        citation="Peterson et al. 2019 (CIFAR-10H); Krizhevsky 2009",
        n_classes=10,
        forms=(
            _form(
                "cifar_human_labels/cifar10h.npz",
                "with_soft_labels",
                "array counts, 10000x10",
                "soft",
            ),
            _form("cifar10h-counts.npy", "with_soft_labels", "the authors' file", "soft"),
        ),
        base="cifar10",
        obtain="github.com/jcpeterson/cifar-10h",
        licence="CC BY-NC-SA 4.0",
    ),
)
