"""Pods, and the cases of programs that are compiled for them."""

import dataclasses

from jax.sharding import Mesh

from bytelax.models import presets
from bytelax.models.blt import BLTConfig
from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig
from experiments.harness import ahead_of_time
from experiments.harness.one_b import shallow

GIB = 2**30
MODELS = {"1B": presets.BLT_1B, "3B": presets.BLT_3B, "8B": presets.BLT_8B}
TRAIN, METHODS = "train", ("blt-s", "blt-dv")


@dataclasses.dataclass(frozen=True)
class Pod:
    """Devices of one kind.

    Attributes:
      platform: as JAX names it.
      topology: as its compiler names it.
      kind: of each device, as `metrics.PEAKS` names it.
      memory: bytes that a program may have of each.
      bandwidth: of that memory, bytes per second, from the vendor's data sheet.
    """

    platform: str
    topology: str
    kind: str
    memory: float
    bandwidth: float


PODS = {
    "v5e 4x4": Pod("tpu", "v5e:4x4", "TPU v5e", 15.75 * GIB, 819e9),
    "v5e 16x16": Pod("tpu", "v5e:16x16", "TPU v5e", 15.75 * GIB, 819e9),
    "v5p 8x8x8": Pod("tpu", "v5p:8x8x8", "TPU v5p", 95.74 * GIB, 2765e9),
    "8 x H200": Pod("cuda", "1x1x8", "H200", 141e9, 4.8e12),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A program for a pod.

    Attributes:
      pod: of `PODS`.
      model: of `MODELS`.
      what: "train", or a method of decoding.
      mesh: of all its devices.
      rows: of each part of the batch.
      context: bytes of a row.
      layers: of each stack at most; None for all.
    """

    pod: str
    model: str
    what: str
    mesh: MeshConfig
    rows: int
    context: int
    layers: int | None = None

    @property
    def name(self) -> str:
        axes = dataclasses.asdict(self.mesh).items()
        mesh = ",".join(f"{axis}={size}" for axis, size in axes if size > 1)
        depth = "" if self.layers is None else f", {self.layers} layers"
        return (
            f"{self.pod}, {self.model}{depth}, {self.what}, {mesh}, "
            f"{self.rows} rows a part, {self.context} bytes"
        )

    def config(self) -> BLTConfig:
        config = MODELS[self.model]
        if self.what == "blt-dv":
            config = dataclasses.replace(config, decoder_input="embedding", block_size=8)
        return shallow(config, self.layers)


def cases(full: bool) -> list[Case]:
    """What is compiled; of the largest that fit, `largest` makes more."""
    if not full:
        small = {"rows": 1, "context": 1024, "layers": 1}
        return [
            Case("v5e 4x4", "1B", TRAIN, MeshConfig(data=2, fsdp=4, tensor=2), **small),
            Case("v5e 4x4", "1B", "blt-s", MeshConfig(data=16), **small),
            Case("v5e 4x4", "1B", "blt-dv", MeshConfig(data=4, tensor=4), **small),
            Case("8 x H200", "1B", "blt-s", MeshConfig(data=4, tensor=2), **small),
        ]
    train, decode = {"rows": 1, "context": 4096}, {"rows": 8, "context": 2048}
    found = []
    for pod, model, trained, decoded in (
        ("v5e 4x4", "1B", MeshConfig(fsdp=16), [MeshConfig(data=16), MeshConfig(data=4, tensor=4)]),
        ("8 x H200", "8B", MeshConfig(fsdp=8), [MeshConfig(data=8), MeshConfig(data=2, tensor=4)]),
        ("v5e 16x16", "3B", MeshConfig(data=4, fsdp=64), [MeshConfig(data=64, tensor=4)]),
        ("v5p 8x8x8", "8B", MeshConfig(data=8, fsdp=64), [MeshConfig(data=128, tensor=4)]),
    ):
        found.append(Case(pod, model, TRAIN, trained, **train))
        found += [Case(pod, model, what, mesh, **decode) for mesh in decoded for what in METHODS]
    return found


def mesh_of(case: Case) -> Mesh:
    pod = PODS[case.pod]
    return sharding.make_mesh(case.mesh, ahead_of_time.devices(pod.platform, pod.topology))
