"""Every name a user can type, with what it means: light, so that listing loads no tensors.

A method is one line in `METHODS` and one file; ``target`` says where its class is, and is
imported only when it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeVar

from revar.errors import unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One registered name.

    Attributes:
        name: what users type.
        summary: one line.
        target: ``module:attribute`` of what it stands for.
        citation: where it comes from.
    """

    name: str
    summary: str
    target: str = ""
    citation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodEntry(Entry):
    """A way to train.

    Attributes:
        scores: the scores its runs offer, its default first.
        cost: class of training cost, in passes of the classifier.
    """

    scores: tuple[str, ...]
    cost: Literal["plain", "bilevel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneEntry(Entry):
    """A network of our own.

    Attributes:
        reads: what inputs it takes.
    """

    reads: Literal["image", "any"]


_ALWAYS = ("softmax", "softmax_entropy")
_DROPOUT = ("dropout_entropy", "dropout_variance", "mutual_information", "mcd")
_REVAR = "Jain, Shanmugam and Shenoy (ReVaR)"

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
        cost="bilevel",
        citation=_REVAR,
    ),
    MethodEntry(
        name="revar-paper",
        summary="the paper's text, literally: own network, linear update, every 15 steps",
        target="revar.methods.revar:ReVaR.paper",
        scores=("uscore", *_ALWAYS, *_DROPOUT, "fused"),
        cost="bilevel",
        citation=_REVAR,
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

BACKBONES: tuple[BackboneEntry, ...] = (
    BackboneEntry(name="auto", summary="chosen by the shape of the inputs", reads="any"),
    BackboneEntry(
        name="linear",
        summary="logistic regression, dropout on the inputs",
        target="revar.nets.dense:linear",
        reads="any",
    ),
    BackboneEntry(
        name="mlp",
        summary="two hidden layers of 128; auto for tables",
        target="revar.nets.dense:mlp",
        reads="any",
    ),
    BackboneEntry(
        name="convnet",
        summary="four convolutions, 0.1 M parameters; auto below 24 px",
        target="revar.nets.convolutional:convnet",
        reads="image",
    ),
    BackboneEntry(
        name="resnet20",
        summary="CIFAR ResNet-20, 0.27 M parameters; auto up to 96 px",
        target="revar.nets.convolutional:resnet20",
        reads="image",
        citation="He et al. 2016",
    ),
    BackboneEntry(
        name="resnet18-cifar",
        summary="ResNet-18 with a 3x3 stem, 11.2 M parameters, for small images",
        target="revar.nets.convolutional:resnet18_cifar",
        reads="image",
        citation="He et al. 2016",
    ),
)

DATASETS: tuple[Entry, ...] = (
    Entry(
        name="digits",
        summary="1,797 handwritten digits of 8x8 px, two thirds train, one third test",
        target="revar.data.digits:digits",
        citation="UCI, through scikit-learn",
    ),
    Entry(
        name="digits-noisy",
        summary="digits with instance-dependent label noise in train, clean and shifted tests",
        target="revar.data.digits:digits_noisy",
        citation="UCI, through scikit-learn; noise after Xia et al. 2020",
    ),
)

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
