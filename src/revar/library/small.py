"""Small data sets: digits, garments, drawings of seven things, and a table of four hospitals."""

from __future__ import annotations

from revar.library.specs import DatasetSpec, Form

_IDX = "revar.data.handwriting:idx_files"
_IDX_COUNT = "revar.data.counts_arrays:idx_files"
_BUILT_IN = "scikit-learn, which has it"
_UCI = "CC BY 4.0 (UCI)"
_LECUN = "LeCun et al. 1998"
_FOUR = "the four idx files, .gz or not"
_MNIST_PAGE = "yann.lecun.com/exdb/mnist"
_USPS_PAGE = "www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets (usps)"
_PACS_PAGE = "domaingeneralization.github.io (PACS)"
_PACS_DOMAINS = (
    ("art_painting", "art paintings", 2_048),
    ("cartoon", "cartoons", 2_344),
    ("sketch", "sketches", 3_929),
)


def _idx(folder: str, sizes: dict[str, int]) -> Form:
    return Form(
        place=folder,
        layout=_FOUR,
        reader=_IDX,
        parts={"train": f"{folder}/train", "test": f"{folder}/t10k"},
        side=28,
        sizes=sizes,
        counter=_IDX_COUNT,
    )


def _usps(reader: str, sizes: dict[str, int], besides: str = "") -> Form:
    return Form(
        place="digits/usps.npz",
        layout=f"arrays of 16x16 bytes and of labels with train and test in their names{besides}",
        reader=f"revar.data.handwriting:{reader}",
        side=16,
        sizes=sizes,
        counter=f"revar.data.counts_arrays:{reader}",
    )


def _pacs(
    name: str, summary: str, reader: str, sizes: dict[str, int], options: dict[str, str | int]
) -> DatasetSpec:
    counter = "pacs_domain" if options else "pacs"
    return DatasetSpec(
        name=name,
        summary=summary,
        citation="Li et al. 2017",
        n_classes=7,
        forms=(
            Form(
                place="pacs/labels.csv",
                layout="sheets of 64 px tiles, <domain>.jpg; columns file, index, class, original",
                reader=reader,
                side=64,
                sizes=sizes,
                counter=f"revar.data.counts:{counter}_packed",
            ),
            Form(
                place="PACS",
                layout="<domain>/<class>/<image>, domains photo, art_painting, cartoon, sketch",
                reader=reader,
                side=224,
                sizes=sizes,
                counter=f"revar.data.counts_files:{counter}",
            ),
        ),
        options=options,
        obtain=_PACS_PAGE,
        licence="none stated; for research",
    )


SPECS: tuple[DatasetSpec, ...] = (
    DatasetSpec(
        name="digits",
        summary="1,797 handwritten digits of 8x8 px, two thirds train, one third test",
        target="revar.data.digits:digits",
        citation="UCI, through scikit-learn",
        n_classes=10,
        sizes={"train": 1_198, "test": 599},
        side=8,
        obtain=_BUILT_IN,
        licence=_UCI,
    ),
    DatasetSpec(
        name="digits-noisy",
        summary="digits with instance-dependent label noise in train, clean and shifted tests",
        target="revar.data.digits:digits_noisy",
        citation="UCI, through scikit-learn; noise after Xia et al. 2020",
        n_classes=10,
        sizes={"train": 1_198, "test": 599, "shifted": 599},
        side=8,
        obtain=_BUILT_IN,
        licence=_UCI,
    ),
    DatasetSpec(
        name="fashion-mnist",
        summary="garments of 28x28 px",
        citation="Xiao et al. 2017",
        n_classes=10,
        forms=(_idx("fashion_mnist", {"train": 60_000, "test": 10_000}),),
        obtain="github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
    ),
    DatasetSpec(
        name="mnist",
        summary="handwritten digits of 28x28 px",
        citation=_LECUN,
        n_classes=10,
        forms=(
            _idx("mnist", {"train": 60_000, "test": 10_000}),
            Form(
                place="digits/mnist-t10k-images-idx3-ubyte.gz",
                layout="and its labels: the test images only",
                reader=_IDX,
                parts={"test": "digits/mnist-t10k"},
                side=28,
                sizes={"test": 10_000},
                counter=_IDX_COUNT,
            ),
        ),
        obtain=_MNIST_PAGE,
        licence="CC BY-SA 3.0",
    ),
    DatasetSpec(
        name="usps",
        summary="handwritten digits of 16x16 px, from envelopes",
        citation="Hull 1994",
        n_classes=10,
        forms=(_usps("usps", {"train": 7_291, "test": 2_007}),),
        obtain=_USPS_PAGE,
        licence="none stated; for research",
    ),
    DatasetSpec(
        name="usps-to-mnist",
        summary="usps, and the test images of mnist at 16x16 px as the shifted test mnist",
        citation=f"Hull 1994; {_LECUN}",
        n_classes=10,
        forms=(
            _usps(
                "usps_to_mnist",
                {"train": 7_291, "test": 2_007, "mnist": 10_000},
                "; beside it the test images and labels of mnist, mnist-t10k-*-ubyte.gz",
            ),
        ),
        obtain=f"{_USPS_PAGE} and {_MNIST_PAGE}",
        licence="as usps and mnist",
    ),
    _pacs(
        "pacs",
        "photos of seven things to train on; other photos, and art paintings as shifted test",
        "revar.data.pacs:photo_to_art",
        {"train": 1_336, "test": 334, "art_painting": 2_048},
        {},
    ),
    *(
        _pacs(
            f"pacs-{domain.replace('_', '-')}",
            f"the {what} of PACS, a test domain",
            "revar.data.pacs:domain",
            {"test": size},
            {"domain": domain},
        )
        for domain, what, size in _PACS_DOMAINS
    ),
    DatasetSpec(
        name="heart-disease",
        summary="13 measurements; Cleveland to train on, three other hospitals as shifted tests",
        citation="Detrano et al. 1989 (UCI)",
        n_classes=2,
        forms=(
            Form(
                place="heart_disease",
                layout="processed.<hospital>.csv, UCI's files with a header row, label in target",
                reader="revar.data.heart:heart_disease",
                parts={
                    "train": "processed.cleveland.csv",
                    "hungarian": "processed.hungarian.csv",
                    "switzerland": "processed.switzerland.csv",
                    "va": "processed.va.csv",
                },
                side=0,
                sizes={"hungarian": 294, "switzerland": 123, "va": 200, "train": 242, "test": 61},
                counter="revar.data.counts:heart_disease",
            ),
        ),
        obtain="archive.ics.uci.edu/dataset/45/heart+disease",
        licence=_UCI,
    ),
)
