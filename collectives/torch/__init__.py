"""PyTorch's collectives over MPI: `import collectives.torch` registers the backend `scaffe` of torch.distributed.

    import collectives.torch                        # before or after torch
    torch.distributed.init_process_group("scaffe")  # under mpirun: ranks and store come from MPI

Install it by `pip install 'scaffe[torch]'`. `hook` is a communication hook for DistributedDataParallel,
`monitored_barrier` a barrier that names the ranks that do not come, `shrink` goes on without lost ranks.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("collectives.torch needs PyTorch: pip install 'scaffe[torch]'") from error

from collectives.torch.hook import hook
from collectives.torch.messages import monitored_barrier
from collectives.torch.start import register, shrink

__all__ = ["hook", "monitored_barrier", "shrink"]

register()
