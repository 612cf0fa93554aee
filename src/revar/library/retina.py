"""Retinal photographs of three countries, referable from grade 2 on or from grade 3 on."""

from __future__ import annotations

from collections.abc import Iterator

from revar.library.specs import DatasetSpec, Form

_PACKED = "diabetic_retinopathy/labels.csv"
_SHEETS = "with <sheet>.jpg of 96 px tiles beside it; columns file, index, image_id, grade"
_KAGGLE = "Kaggle competition terms: research"
_EYEPACS_SIZES = {"train": 3_543, "meta": 644, "tune": 323, "calibration": 643, "test": 1_287}


def _specs(grade: int) -> Iterator[DatasetSpec]:
    ending = "" if grade == 2 else f"-grade{grade}"
    cut = f"referable from grade {grade} on"
    domains = {"aptos": 3_662, "deepdrid": 2_000}
    yield DatasetSpec(
        name=f"eyepacs{ending}",
        summary=f"Kaggle DR (USA), {cut}, split by patient; shifted tests aptos and deepdrid",
        citation="Kaggle and EyePACS 2015; Gulshan et al. 2016",
        n_classes=2,
        forms=(
            Form(
                place=_PACKED,
                layout=f"{_SHEETS}; sheets eyepacs_train and eyepacs_test",
                reader="revar.data.retina:eyepacs_packed",
                side=96,
                sizes=_EYEPACS_SIZES | domains,
                counter="revar.data.counts:eyepacs_packed",
            ),
            Form(
                place="eyepacs/trainLabels.csv",
                layout="train/<image>.jpeg, retinopathy_solution.csv and test/<image>.jpeg by it",
                reader="revar.data.retina:eyepacs_official",
                side=512,
                sizes={"test": 42_670},
                counter="revar.data.counts_files:eyepacs",
            ),
        ),
        options={"grade": grade},
        obtain="www.kaggle.com/c/diabetic-retinopathy-detection",
        licence=_KAGGLE,
        paper={"train": 35_697, "val": 2_617, "test": 42_690},
        paper_side=512,
    )
    yield DatasetSpec(
        name=f"aptos{ending}",
        summary=f"APTOS 2019 (India), {cut}, a test domain",
        citation="Karthik et al. 2019 (APTOS)",
        n_classes=2,
        forms=(
            Form(
                place=_PACKED,
                layout=f"{_SHEETS}; sheet aptos",
                reader="revar.data.retina:aptos_packed",
                parts={"test": "aptos"},
                side=96,
                sizes={"test": 3_662},
                counter="revar.data.counts:sheets",
            ),
            Form(
                place="aptos/train.csv",
                layout="with train_images/<id_code>.png beside it, as it unpacks",
                reader="revar.data.retina:aptos_official",
                side=512,
                sizes={"test": 3_662},
                counter="revar.data.counts_files:aptos",
            ),
        ),
        options={"grade": grade},
        obtain="www.kaggle.com/c/aptos2019-blindness-detection",
        licence=_KAGGLE,
        paper={"test": 2_917},
        paper_side=512,
    )
    yield DatasetSpec(
        name=f"deepdrid{ending}",
        summary=f"DeepDRiD (China), {cut}; its own parts, which share no patient",
        citation="Liu et al. 2022 (DeepDRiD)",
        n_classes=2,
        forms=(
            Form(
                place=_PACKED,
                layout=f"{_SHEETS}; sheets deepdrid_train, deepdrid_valid and deepdrid_test",
                reader="revar.data.retina:deepdrid_packed",
                parts={
                    "train": "deepdrid_train",
                    "meta": "deepdrid_valid",
                    "test": "deepdrid_test",
                },
                side=96,
                sizes={"train": 1_200, "meta": 400, "test": 400},
                counter="revar.data.counts:sheets",
            ),
            Form(
                place="DeepDRiD/regular_fundus_images",
                layout="the folder of the authors' repository, validation as test",
                reader="revar.data.retina:deepdrid_official",
                parts={
                    "train": "regular-fundus-training/regular-fundus-training.csv",
                    "test": "regular-fundus-validation/regular-fundus-validation.csv",
                },
                side=512,
                sizes={"train": 1_200, "test": 400},
                counter="revar.data.counts_files:deepdrid",
            ),
        ),
        options={"grade": grade},
        obtain="github.com/deepdrdoc/DeepDRiD",
        licence="CC BY-SA 4.0",
    )


SPECS: tuple[DatasetSpec, ...] = (*_specs(2), *_specs(3))
