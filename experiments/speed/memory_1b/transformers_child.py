"""As `child`, for transformers; it decodes without a cache, as in `experiments.speed.vs_peers`.

python -m experiments.speed.memory_1b.transformers_child DIRECTORY KIND
"""

import json
import sys

import psutil

from experiments.speed.memory_1b.child import PATCHING, PLACES
from experiments.speed.memory_1b.stages import Stages

COUNT, TURNS = 4, 3  # bytes decoded in a call, and calls that are timed


def main(directory: str, kind: str) -> None:
    stages = Stages()
    import numpy as np
    import torch
    import transformers

    from experiments.harness import peers

    torch.set_num_threads(len(psutil.Process().cpu_affinity()))
    stages.end("load")
    config = transformers.AutoConfig.from_pretrained(directory, **PATCHING)
    model = transformers.BltForCausalLM.from_pretrained(
        directory, config=config, dtype=getattr(torch, kind)
    ).eval()
    weights = sum(x.nbytes for x in model.parameters())
    stages.end("decode")
    wall = {}
    for place in PLACES:
        text = (b"A byte latent transformer reads bytes. " * place)[:place]
        times = [
            peers.generate(model, text, COUNT, use_cache=False)[1] / COUNT
            for _ in range(TURNS + 1)  # the first is not counted
        ]
        wall[str(place)] = 1e3 * float(np.median(times[1:]))
    stages.end()
    print(json.dumps({"weights_gb": weights / 1e9, "ms_per_byte": wall}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
