"""The named systems: a file each, with its network, loss, drafter, and how it is built."""

from bytelax.systems.blt_d import BlockDiffusionDrafter as BlockDiffusionDrafter
from bytelax.systems.blt_d import BlockInOrderDrafter as BlockInOrderDrafter
from bytelax.systems.blt_s import BltSDrafter as BltSDrafter
from bytelax.systems.dflash import DFlashDrafter as DFlashDrafter
from bytelax.systems.draft_model import DraftModelDrafter as DraftModelDrafter
from bytelax.systems.eagle import EagleDrafter as EagleDrafter
from bytelax.systems.early_exit import EarlyExitDrafter as EarlyExitDrafter
from bytelax.systems.layer_skip import LayerSkipDrafter as LayerSkipDrafter
from bytelax.systems.lookup import LookupDrafter as LookupDrafter
from bytelax.systems.medusa import MedusaDrafter as MedusaDrafter
from bytelax.systems.medusa import MedusaTreeDrafter as MedusaTreeDrafter
from bytelax.systems.spectr import ParallelDrafter as ParallelDrafter
from bytelax.systems.two_byte import TwoByteDrafter as TwoByteDrafter
