"""A network as a function of its parameters, its buffers left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

Params = dict[str, Tensor]
"""Parameters by their dotted name."""
Rate = float | Tensor
"""A learning rate: a number, or one on the device, where a recorded step reads it."""
_KEPT = "_statistics_kept"
"""Marks batch norm whose running statistics are final."""
_Place = tuple[dict[str, Any], str, Tensor, str]
"""A tensor of a network: what holds it, by which key, the tensor, and its dotted name."""


def parameters(net: nn.Module) -> Params:
    """The trainable parameters of a network, detached: a point to differentiate at."""
    return {name: p.detach() for name, p in trainable(net).items()}


def trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters themselves, by the first of their names.

    As ``named_parameters`` finds them, whose walk costs as much as a pass of a small net.
    """
    found: dict[nn.Parameter, str] = {}
    _collect(net, "", found)
    return {name: parameter for parameter, name in found.items()}


def _collect(module: nn.Module, prefix: str, found: dict[nn.Parameter, str]) -> None:
    for key, parameter in module._parameters.items():
        if parameter is not None and parameter.requires_grad:
            found.setdefault(parameter, prefix + key)
    for key, child in module._modules.items():
        if child is not None:
            _collect(child, f"{prefix}{key}.", found)


def call(net: nn.Module, params: Params | None, *inputs: Tensor, part: str = "forward") -> Tensor:
    """``net.part(*inputs)`` with ``params`` in place of its own, see `placed`."""
    with placed(net, params):
        output: Tensor = getattr(net, part)(*inputs)
    return output


@contextmanager
def placed(net: nn.Module, params: Params | None) -> Iterator[None]:
    """A block in which ``params`` stand in place of a network's own; all of them come back.

    Buffers that a pass would write are copies meanwhile, so batch-norm statistics that it updates
    are the copies'; the network keeps its own. `mode` is to be set before. With ``params=None``
    the network runs as it is.

    Raises:
        KeyError: the network has no parameter of some name.
    """
    if params is None:
        yield
        return
    # Not `functional_call`: its care for names costs as much as a pass of a small net.
    places: list[_Place] = []
    written: list[_Place] = []
    _find(net, "", places, written)
    # By what is there: a tied parameter has one name and several places.
    new = {id(own): params[name] for _, _, own, name in places if name in params}
    if len(new) < len(params):
        unknown = sorted(set(params) - {name for _, _, _, name in places})
        raise KeyError(f"no such parameters: {', '.join(unknown)}")
    if written:
        buffers = {id(own): own for _, _, own, _ in written}
        new.update(zip(buffers, copied(list(buffers.values())), strict=True))
        places += written
    changed = [place for place in places if id(place[2]) in new]
    try:
        for tensors, key, own, _ in changed:
            tensors[key] = new[id(own)]
        yield
    finally:
        for tensors, key, own, _ in changed:
            tensors[key] = own


def _find(module: nn.Module, prefix: str, places: list[_Place], written: list[_Place]) -> None:
    """Where parameters are, and where buffers are that a pass may write."""
    for key, parameter in module._parameters.items():
        if parameter is not None:
            places.append((module._parameters, key, parameter, prefix + key))
    if module._buffers and not _only_reads(module):
        for key, buffer in module._buffers.items():
            if buffer is not None:
                written.append((module._buffers, key, buffer, prefix + key))
    for key, child in module._modules.items():
        if child is not None:
            _find(child, f"{prefix}{key}.", places, written)


def _only_reads(module: nn.Module) -> bool:
    """Whether these are statistics of torch's own batch norm, and it keeps to them."""
    if module.training or not isinstance(module, _NormBase):
        return False
    return type(module).__module__.startswith("torch.nn.")


def copied(tensors: list[Tensor]) -> list[Tensor]:
    """Of all of them, on a GPU those of a kind at once: a net has hundreds of small ones."""
    if all(value.device.type == "cpu" for value in tensors):
        return [value.detach().clone() for value in tensors]
    copies = [torch.empty_like(value) for value in tensors]
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for number, value in enumerate(tensors):
        kinds.setdefault((value.dtype, value.device), []).append(number)
    for numbers in kinds.values():
        with torch.no_grad():
            torch._foreach_copy_([copies[n] for n in numbers], [tensors[n] for n in numbers])
    return copies


def flat_state(net: nn.Module) -> Tensor:
    """[P] every real number of a network's state, parameters and statistics, end to end."""
    real = [value for value in net.state_dict().values() if value.is_floating_point()]
    return torch.cat([value.flatten() for value in real])


def load_flat_state(net: nn.Module, flat: Tensor) -> None:
    """Put the numbers of `flat_state` back."""
    for value, part in zip(*_beside_flat(net, flat), strict=True):
        value.detach().copy_(part)


@torch.no_grad()
def follow_flat_state(net: nn.Module, flat: Tensor, rate: float) -> None:
    """Move numbers of `flat_state` towards those of a network, by a share of the way.

    Nothing is copied: to put the weights together first takes five times as long. What lies in
    another order than its part, as weights of convolutions do on a GPU, goes apart: one such among
    them, and a GPU takes all one by one.
    """
    values, parts = _beside_flat(net, flat)
    pairs = list(zip(values, parts, strict=True))
    for plain in (True, False):
        alike = [pair for pair in pairs if pair[0].is_contiguous() is plain]
        if alike:
            torch._foreach_lerp_([part for _, part in alike], [value for value, _ in alike], rate)


def _beside_flat(net: nn.Module, flat: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The real parts of a network's state, and their places in ``flat``, in their shapes."""
    held: list[Tensor] = []
    if not _collect_state(net, held):
        held = list(net.state_dict().values())
    real = [value for value in held if value.is_floating_point()]
    parts = flat.split([value.numel() for value in real])
    return real, [part.view(value.shape) for value, part in zip(real, parts, strict=True)]


def _collect_state(module: nn.Module, found: list[Tensor]) -> bool:
    """Add the values of ``state_dict``, without the care for names that costs as much as a pass.

    Not where a module writes its state in a way of its own.
    """
    kind = type(module)
    if (
        kind.state_dict is not nn.Module.state_dict
        or kind._save_to_state_dict is not nn.Module._save_to_state_dict
        or kind.get_extra_state is not nn.Module.get_extra_state
        or module._state_dict_hooks
        or module._state_dict_pre_hooks
    ):
        return False
    found += [own for own in module._parameters.values() if own is not None]
    transient = module._non_persistent_buffers_set
    for key, buffer in module._buffers.items():
        if buffer is not None and key not in transient:
            found.append(buffer)
    children = (child for child in module._modules.values() if child is not None)
    return all(_collect_state(child, found) for child in children)


def at_least_single(x: Tensor) -> Tensor:
    """Half precision, as autocast leaves it, to float32; anything finer as it is."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def average(values: Tensor) -> Tensor:
    """The mean over examples, the first axis, as a scalar; runs side by side are summed.

    Runs that train side by side lie along the axes after the first. They share no parameter, so
    the gradient of the sum is that of each run's own mean.
    """
    return values.mean(0).sum()


def keep_statistics(net: nn.Module) -> None:
    """Let batch norm keep to its running statistics for good, whatever `mode` asks for."""
    for module in net.modules():
        if isinstance(module, _NormBase):
            setattr(module, _KEPT, True)


def norms_by_batch(net: nn.Module) -> bool:
    """Whether some layer, in the mode it is in, takes its statistics from the batch."""
    return any(module.training for module in net.modules() if isinstance(module, _NormBase))


def without_autocast() -> AbstractContextManager[Any]:
    """A block in the precision of its tensors, whatever its caller has asked for."""
    asked = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    if not asked:
        return nullcontext()
    stack = ExitStack()
    for device in asked:
        stack.enter_context(torch.autocast(device, enabled=False))
    return stack


@contextmanager
def as_usual() -> Iterator[None]:
    """A block that trains, also where its caller records no gradients or uses autocast."""
    with torch.inference_mode(mode=False), torch.enable_grad(), without_autocast():
        yield


def mode(net: nn.Module, *, dropout: bool, statistics: bool) -> AbstractContextManager[None]:
    """Run a network with dropout on or off, normalising by the batch or by its statistics.

    ``dropout=True, statistics=True`` is Monte-Carlo dropout: every random layer is on while
    batch norm uses its running statistics. ``statistics=False`` makes batch norm use the batch
    (and update its running statistics, unless `call` hands it copies); after
    `keep_statistics` it uses those all the same. All flags come back.
    """
    return _Mode(net, dropout, not statistics)


class _Mode:
    """A block of `mode`. Not made by a generator: several in a step cost as much as a layer."""

    def __init__(self, net: nn.Module, dropout: bool, by_batch: bool) -> None:
        self._wanted = net, dropout, by_batch
        self._flags: list[tuple[dict[str, Any], bool]] = []

    def __enter__(self) -> None:
        try:
            _set(*self._wanted, self._flags)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        # The first last: a module that is used twice came here twice.
        for attributes, training in reversed(self._flags):
            attributes["training"] = training


def _set(
    module: nn.Module, dropout: bool, by_batch: bool, flags: list[tuple[dict[str, Any], bool]]
) -> None:
    """Set the flags of all modules, and keep those they had.

    Straight into their attributes: a module's own way to set one costs more than a small layer.
    """
    attributes = vars(module)
    flags.append((attributes, module.training))
    norm = isinstance(module, _NormBase)
    attributes["training"] = by_batch and _KEPT not in attributes if norm else dropout
    for child in module._modules.values():
        if child is not None:
            _set(child, dropout, by_batch, flags)
