"""Let ``torchvision`` (and so ``open_clip``) be imported beside a CPU-only torch; nothing happens elsewhere.

The published torchvision is built for CUDA. Beside a torch without CUDA its compiled operators do not load, and its
Python half then fails while it registers fake kernels for two operators nobody defined. Naming their schemas first is
enough; neither is ever called here. Import this module before torchvision or open_clip.
"""

import torch

_LIBRARY = None  # the definitions live as long as this object

if torch.version.cuda is None and torch.version.hip is None:
    try:
        _LIBRARY = torch.library.Library("torchvision", "DEF")
        _LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:  # already defined: torchvision was loaded, and works
        _LIBRARY = None
