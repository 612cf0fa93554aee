"""Data as it is found: two sets of WILDS, and Clothing1M."""

from __future__ import annotations

from revar.library.specs import DatasetSpec, Form

_WILDS = "wilds.stanford.edu"

SPECS: tuple[DatasetSpec, ...] = (
    DatasetSpec(
        name="camelyon17",
        summary="tumour or none in 96x96 px of lymph node; shifted val and test hospitals",
        citation="Bandi et al. 2018; Koh et al. 2021 (WILDS)",
        n_classes=2,
        forms=(
            Form(
                place="camelyon17_v1.0/metadata.csv",
                layout="with the folder patches beside it, as wilds unpacks it",
                reader="revar.data.wilds:camelyon17",
                side=96,
                sizes={"train": 302_436, "id_val": 33_560, "val": 34_904, "test": 85_054},
                counter="revar.data.counts_files:camelyon17",
            ),
        ),
        obtain=_WILDS,
        licence="CC0",
    ),
    DatasetSpec(
        name="iwildcam",
        summary="animals before camera traps; shifted val and test cameras",
        citation="Beery et al. 2020; Koh et al. 2021 (WILDS)",
        n_classes=182,
        forms=(
            Form(
                place="iwildcam_v2.0/metadata.csv",
                layout="with the folder train beside it, as wilds unpacks it",
                reader="revar.data.wilds:iwildcam",
                side=224,
                sizes={
                    "train": 129_809,
                    "id_val": 7_314,
                    "id_test": 8_154,
                    "val": 14_961,
                    "test": 42_791,
                },
                counter="revar.data.counts_files:iwildcam",
            ),
        ),
        obtain=_WILDS,
        licence="CDLA-Permissive-1.0",
    ),
    DatasetSpec(
        name="clothing1m",
        summary="garments with labels from the text around them; clean meta set and test",
        citation="Xiao et al. 2015",
        n_classes=14,
        forms=(
            Form(
                place="clothing1m/noisy_train_key_list.txt",
                layout="the other key lists and the two *_label_kv.txt beside it, and images/",
                reader="revar.data.clothing:clothing1m",
                side=224,
                sizes={
                    "train": 1_000_000,
                    "meta": 14_313,
                    "clean_train": 47_570,
                    "test": 10_526,
                },
                counter="revar.data.counts_files:clothing1m",
            ),
        ),
        obtain="github.com/Cysu/noisy_label (on request)",
        licence="on request from its authors: research",
    ),
)
