"""Every name a user can type, with what it means: light, so that listing loads no tensors.

A method is one line in `METHODS` and one file; ``target`` says where its class is, and is
imported only when it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeVar

from revar.catalogue import BACKBONES, DATASETS
from revar.entries import BackboneEntry, Entry
from revar.errors import unknown

__all__ = [
    "BACKBONES", "DATASETS", "METHODS", "OWN_SCORES", "SCORES", "BackboneEntry", "Entry",
    "MethodEntry", "find", "load",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodEntry(Entry):
    """A way to train.

    Attributes:
        scores: the scores its runs offer, its default first; ``fused`` where labels are held back.
        own: the one it is published with; ``own`` is another name for it.
        cost: class of training cost: ``plain`` as ERM; ``passes`` with dropout passes in every
            step; ``bilevel`` with a look-ahead in some or all steps.
    """

    scores: tuple[str, ...]
    own: str = "softmax"
    cost: Literal["plain", "passes", "bilevel"] = "plain"


_ALWAYS = ("softmax", "softmax_entropy")
_DROPOUT = ("dropout_entropy", "dropout_variance", "mutual_information", "mcd")
_BY_DROPOUT = ("mcd", *_ALWAYS, *_DROPOUT[:-1], "fused")
_REVAR = "Jain, Shanmugam and Shenoy (ReVaR)"

DEFAULT_METHOD = "trajectory"
"""What the evidence supports, see docs/uscore.md."""

METHODS: tuple[MethodEntry, ...] = (
    MethodEntry(
        name="erm",
        summary="plain training; softmax response or dropout says when to abstain",
        target="revar.methods.erm:ERM",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        cost="plain",
        citation="Geifman and El-Yaniv 2017; Gal and Ghahramani 2016",
    ),
    MethodEntry(
        name="revar",
        summary="U-Score on the classifier's evidence, graded by held-out alignments; fused score",
        target="revar.methods.revar:ReVaR",
        scores=("fused", "uscore", *_ALWAYS, *_DROPOUT),
        own="uscore",
        cost="bilevel",
        citation=_REVAR,
    ),
    MethodEntry(
        name="trajectory",
        summary="the default: f is held to what it said early in training, g learns from the run",
        target="revar.methods.trajectory:Trajectory",
        scores=("softmax", "uscore", *_ALWAYS[1:], *_DROPOUT, "fused"),
        own="uscore",
        cost="plain",
        citation="Liu et al. 2020; Rabanser et al. 2022; Swayamdipta et al. 2020",
    ),
    MethodEntry(
        name="revar-paper",
        summary="the paper's text, literally: own network, linear update, every 15 steps",
        target="revar.methods.revar:ReVaR.paper",
        scores=("uscore", *_ALWAYS, *_DROPOUT, "fused"),
        own="uscore",
        cost="bilevel",
        citation=_REVAR,
    ),
    MethodEntry(
        name="ibr",
        summary="the paper's text without the variance term (ReVaR-NoVarMin)",
        target="revar.methods.revar:ReVaR.ibr",
        scores=("uscore", *_ALWAYS, *_DROPOUT, "fused"),
        own="uscore",
        cost="bilevel",
        citation=_REVAR,
    ),
    MethodEntry(
        name="entropy",
        summary="plain training that rewards confidence; entropy=0.01 does so for any method",
        target="revar.methods.erm:ERM.with_entropy",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        citation="Feng et al. 2023",
    ),
    MethodEntry(
        name="gamblers",
        summary="Deep Gamblers: a stake on the classes, part of which may be kept back",
        target="revar.methods.gamblers:Gamblers",
        scores=("abstention", *_ALWAYS, *_DROPOUT, "fused"),
        own="abstention",
        citation="Liu et al. 2019 (Deep Gamblers)",
    ),
    MethodEntry(
        name="selectivenet",
        summary="a head that selects, trained for a target coverage with the classifier",
        target="revar.methods.selectivenet:SelectiveNet",
        scores=("selection", *_ALWAYS, *_DROPOUT, "fused"),
        own="selection",
        citation="Geifman and El-Yaniv 2019 (SelectiveNet)",
    ),
    MethodEntry(
        name="sat",
        summary="self-adaptive training: labels the network doubts go to an abstention output",
        target="revar.methods.sat:SAT",
        scores=("abstention", *_ALWAYS, *_DROPOUT, "fused"),
        own="abstention",
        citation="Huang, Zhang and Zhang 2020 (self-adaptive training)",
    ),
    MethodEntry(
        name="mmce",
        summary="cross-entropy plus a kernel measure of the calibration error of the batch",
        target="revar.methods.mmce:MMCE",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        citation="Kumar, Sarawagi and Jain 2018",
    ),
    MethodEntry(
        name="brier",
        summary="squared error of the class probabilities instead of cross-entropy",
        target="revar.methods.brier:Brier",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        citation="Brier 1950",
    ),
    MethodEntry(
        name="flsd53",
        summary="focal loss, gamma 5 where the label is unlikely and 3 elsewhere",
        target="revar.methods.focal:FLSD53",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        citation="Mukhoti et al. 2020",
    ),
    MethodEntry(
        name="adafocal",
        summary="focal loss, gamma per range of confidence by calibration on the meta set",
        target="revar.methods.adafocal:AdaFocal",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        citation="Ghosh, Schaaf and Gormley 2022 (AdaFocal)",
    ),
    MethodEntry(
        name="mbr",
        summary="weights that fall with the probability margin, fixed, not learned; our reading",
        target="revar.methods.mbr:MBR",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        citation="Jain, Shanmugam and Shenoy (ReVaR); after Wang et al. 2021 (MAIL)",
    ),
    MethodEntry(
        name="vr",
        summary="ERM with the dropout variance of the training batch in its loss",
        target="revar.methods.vr:VR",
        scores=(*_ALWAYS, *_DROPOUT, "fused"),
        cost="passes",
        citation=_REVAR,
    ),
    MethodEntry(
        name="mwn",
        summary="Meta-Weight-Net: a small network turns losses into weights, by a meta set",
        target="revar.methods.mwn:MetaWeightNet",
        scores=_BY_DROPOUT,
        own="mcd",
        cost="bilevel",
        citation="Shu et al. 2019 (Meta-Weight-Net)",
    ),
    MethodEntry(
        name="l2r",
        summary="weights of a batch from agreement of its gradients with those of a meta batch",
        target="revar.methods.l2r:L2R",
        scores=_BY_DROPOUT,
        own="mcd",
        cost="bilevel",
        citation="Ren et al. 2018 (learning to reweight)",
    ),
    MethodEntry(
        name="fsr",
        summary="like l2r by the last layer, with valuable training examples for a meta set",
        target="revar.methods.fsr:FSR",
        scores=_BY_DROPOUT,
        own="mcd",
        cost="bilevel",
        citation="Zhang and Pfister 2021 (fast sample reweighting)",
    ),
    MethodEntry(
        name="fsr-full",
        summary="fsr with its authors' extras: mixup, averaged weights, soft labels",
        target="revar.methods.fsr:FSR.full",
        scores=_BY_DROPOUT,
        own="mcd",
        cost="bilevel",
        citation="Zhang and Pfister 2021 (fast sample reweighting)",
    ),
    MethodEntry(
        name="history",
        summary="plain training; inputs that earlier weights doubted are uncertain, four passes",
        target="revar.methods.history:History",
        scores=("history", *_ALWAYS, *_DROPOUT, "fused"),
        own="history",
        citation="Rabanser et al. 2022 (training dynamics)",
    ),
)

SCORES: tuple[Entry, ...] = (
    Entry(
        name="softmax",
        summary="negative log-odds of the top class",
        target="revar.scores.softmax:softmax",
        citation="Geifman and El-Yaniv 2017",
    ),
    Entry(
        name="softmax_entropy",
        summary="entropy of the class probabilities",
        target="revar.scores.softmax:softmax_entropy",
    ),
    Entry(
        name="dropout_entropy",
        summary="entropy of the mean probabilities of T dropout passes",
        target="revar.scores.dropout:dropout_entropy",
        citation="Gal and Ghahramani 2016",
    ),
    Entry(
        name="dropout_variance",
        summary="variance of the probabilities over T dropout passes, summed over classes",
        target="revar.scores.dropout:dropout_variance",
        citation="equation 5 of the ReVaR paper",
    ),
    Entry(
        name="mutual_information",
        summary="entropy of the mean minus mean entropy of T dropout passes",
        target="revar.scores.dropout:mutual_information",
        citation="Houlsby et al. 2011",
    ),
    Entry(
        name="mcd",
        summary="dropout_entropy, and the label predicted by the mean of the passes too",
        target="revar.scores.dropout:dropout_entropy",
        citation="Gal and Ghahramani 2016",
    ),
    Entry(
        name="uscore",
        summary="the learned network g(x), oriented so that higher is less certain",
        target="revar.scores.learned:uscore",
        citation=_REVAR,
    ),
    Entry(
        name="fused",
        summary="logistic model of P(error) on log-odds, dropout entropy and variance, and U-Score",
        target="revar.scores.learned:fused",
        citation="ours",
    ),
)

OWN_SCORES: tuple[Entry, ...] = (
    Entry(
        name="abstention",
        summary="log-odds of the class 'none of these' (gamblers, sat)",
        citation="Liu et al. 2019; Huang et al. 2020",
    ),
    Entry(
        name="selection",
        summary="negative logit of the selection head (selectivenet)",
        citation="Geifman and El-Yaniv 2019",
    ),
    Entry(
        name="history",
        summary="log-odds against the label, averaged over snapshots of the training (history)",
        citation="Rabanser et al. 2022",
    ),
)
"""Scores that a method brings along, as columns of its predictions."""

_E = TypeVar("_E", bound=Entry)


def find(kind: str, name: str, entries: tuple[_E, ...]) -> _E:
    """The entry of that name.

    Raises:
        InputError: there is none; the message has the nearest.
    """
    for entry in entries:
        if entry.name == name:
            return entry
    raise unknown(kind, name, [entry.name for entry in entries])


def load(target: str) -> Any:
    """Import what a ``module:attribute.attribute`` names.

    >>> load("math:pi")
    3.141592653589793
    """
    module, _, path = target.partition(":")
    found: Any = import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found
