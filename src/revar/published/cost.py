"""What training costs, and on how much data."""

from __future__ import annotations

from revar.published.base import PublishedTable, printed

TABLES: tuple[PublishedTable, ...] = (
    printed(
        """
                        imagenet-1k  cifar100  eyepacs  imagenet-100  camelyon17  iwildcam
        time-per-epoch  1.2          1.2       1.2      1.2           1.2         1.2
        epochs          1.2          1.4       1.5      1.3           1.4         1.5
        """,
        name="cost",
        label="tab:my_label",
        caption="Time of an epoch and epochs to converge, relative to plain training.",
        metric="ratio to plain training",
        higher_is_better=False,
        percent=False,
        notes=(
            "The label is used four times in the source; this is the table of relative time.",
            "The product is 1.44 to 1.80 and 1.66 on average; the text says 1.5.",
            "All experiments are said to take 300 epochs, so how convergence is seen is not said.",
            "Text only: selectivenet needs about 1.3 times and sat about 1.2 times the epochs.",
            (
                "The text has sat and gamblers trained anew for another coverage. That is so of "
                "selectivenet; gamblers may tune its reward for one, sat does not need to."
            ),
        ),
    ),
    printed(
        """
                      classes  train   validation  test   side
        eyepacs       5        35697   2617        42690  512
        aptos         5        -       -           2917   512
        imagenet-100  100      130000  -           5000   256
        cifar100      100      50000   -           10000  28
        """,
        name="dataset-statistics",
        label="tab:datasets",
        caption="Classes, images and their side in pixels; the five grades are made two classes.",
        metric="count",
        percent=False,
        notes=(
            "eyepacs has 35,126 training and 53,576 test images where it is published.",
            "aptos has 3,662 labelled images; 80 % of them are 2,929.",
            "cifar100 has images of 32 pixels; the text gives it 10 categories.",
            "imagenet-100: 130,000 is 1,300 in each class, the most there is; some have fewer.",
            "Text only: imagenet-1k has 1.28M training, 50k validation and 100k test images.",
        ),
    ),
)
