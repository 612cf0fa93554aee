"""Networks and data sets by name, for `revar.registry`."""

from __future__ import annotations

from revar.entries import BackboneEntry, Entry
from revar.library import SPECS

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
        name="mlp-512x4",
        summary="four hidden layers of 512, for large tables; mlp-WIDTHxDEPTH in any size",
        reads="any",
    ),
    BackboneEntry(
        name="perceptron",
        summary="two hidden layers of 32 without batch norm; for small regressions",
        target="revar.nets.dense:perceptron",
        reads="any",
    ),
    BackboneEntry(
        name="convnet",
        summary="four convolutions, 0.1 M parameters; auto below 24 px",
        target="revar.nets.convolutional:convnet",
        reads="image",
    ),
    *(
        BackboneEntry(
            name=name,
            summary=summary,
            target=f"revar.nets.residual:{name.replace('-', '_')}",
            reads="image",
            citation="He et al. 2016",
        )
        for name, summary in (
            ("resnet20", "CIFAR ResNet-20, 0.27 M parameters; auto up to 96 px"),
            ("resnet32", "CIFAR ResNet-32, 0.46 M parameters"),
            ("resnet56", "CIFAR ResNet-56, 0.85 M parameters"),
            ("resnet18-cifar", "ResNet-18 with a 3x3 stem, 11.2 M parameters, for small images"),
            ("resnet34-cifar", "ResNet-34 with a 3x3 stem, 21.3 M parameters, for small images"),
            ("resnet50-cifar", "ResNet-50 with a 3x3 stem, 23.5 M parameters, for small images"),
        )
    ),
    BackboneEntry(
        name="wrn-28-10",
        summary="wide ResNet-28-10, 36.5 M parameters, for small images",
        target="revar.nets.wide:wide_resnet",
        reads="image",
        citation="Zagoruyko and Komodakis 2016",
    ),
    BackboneEntry(
        name="vgg16-bn",
        summary="VGG-16 for 32 px, one hidden layer of 512 before the head, 15.0 M parameters",
        target="revar.nets.vgg:vgg16_bn",
        reads="image",
        citation="Simonyan and Zisserman 2015; Liu and Deng 2015",
    ),
    BackboneEntry(
        name="vit-cifar",
        summary="vision transformer, patches of 4 px, six layers of 192, 2.7 M parameters",
        target="revar.nets.transformer:vit_cifar",
        reads="image",
        citation="Dosovitskiy et al. 2021",
    ),
    BackboneEntry(
        name="tabular",
        summary="an embedding of every input number or category, then residual blocks of 128",
        target="revar.nets.tabular:tabular",
        reads="any",
        citation="Gorishniy et al. 2021, 2022",
    ),
)

DATASETS: tuple[Entry, ...] = SPECS
"""Each is a `revar.library.specs.DatasetSpec`: sizes, layout, source, licence."""
