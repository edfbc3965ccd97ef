"""The named systems: a file each, with its network, loss, drafter, and how it is built."""

from bytelax.systems.blt_d import BlockDiffusionDrafter, BlockInOrderDrafter
from bytelax.systems.blt_s import BltSDrafter
from bytelax.systems.dflash import DFlashDrafter
from bytelax.systems.draft_model import DraftModelDrafter
from bytelax.systems.eagle import EagleDrafter
from bytelax.systems.early_exit import EarlyExitDrafter
from bytelax.systems.layer_skip import LayerSkipDrafter
from bytelax.systems.lookup import LookupDrafter
from bytelax.systems.medusa import MedusaDrafter, MedusaTreeDrafter
from bytelax.systems.spectr import ParallelDrafter
from bytelax.systems.two_byte import TwoByteDrafter

__all__ = [
    "BlockDiffusionDrafter",
    "BlockInOrderDrafter",
    "BltSDrafter",
    "DFlashDrafter",
    "DraftModelDrafter",
    "EagleDrafter",
    "EarlyExitDrafter",
    "LayerSkipDrafter",
    "LookupDrafter",
    "MedusaDrafter",
    "MedusaTreeDrafter",
    "ParallelDrafter",
    "TwoByteDrafter",
]
