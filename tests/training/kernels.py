"""Count operations as kernels of a device, and refuse to leave the device."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NOT_KERNELS = ("empty", "detach", "_unsafe_view", "new_empty", "resize_", "lift_fresh")


class Kernels(TorchDispatchMode):
    """Count every operation that is neither a view nor an allocation."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returns = function._schema.returns
        view = any(one.alias_info is not None and not one.alias_info.is_write for one in returns)
        if not view and not function._schema.name.removeprefix("aten::").startswith(NOT_KERNELS):
            self.count += 1
        return function(*args, **(kwargs or {}))


class OnDevice(Kernels):
    """Fail where a number goes from the host to the device or back."""

    def __init__(self, device):
        super().__init__()
        self.device = torch.device(device)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(function, types, args, kwargs)
        for value in torch.utils._pytree.tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor):
                assert value.device == self.device, f"{function} touches the {value.device}"
        return result
