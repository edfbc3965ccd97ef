"""BLT-D and BLT-DV: the decoder of a BLT fills blocks of masked bytes."""

from bytelax import decode
from bytelax.decode import unmasking
from bytelax.decode.drafters import Drafter
from bytelax.decode.method import Method
from bytelax.options import BltD, BltDV
from bytelax.systems.fitting import Model, heads_of


def build(options: BltD | BltDV, model: Model) -> Method:
    """Returns the method that its options describe."""
    rule = unmasking.known(options.unmask, alpha=options.alpha, gamma=options.gamma)
    size = _checked_size(options.block_size, model)
    if isinstance(options, BltDV):
        return Method(model.target(), _verified(options, model, size, rule))
    drafter = decode.BlockDiffusion(size, rule, latent="ahead")
    return Method(model.target(), drafter, decode.take_all)


def _verified(options: BltDV, model: Model, size: int, rule: unmasking.Unmask) -> Drafter:
    one_step = rule == unmasking.ONE_STEP
    if options.table and not one_step:
        raise ValueError("the block table fills a block in one pass: it needs unmask='one-step'")
    has_table = heads_of(model).block_table
    if options.table or (options.table is None and one_step and has_table):
        return decode.BlockInOrder(size, latent=options.latent)
    return decode.BlockDiffusion(size, rule, latent=options.latent)


def _checked_size(size: int, model: Model) -> int:
    trained = getattr(model.config, "block_size", size)  # the drafter needs a BLT
    if not trained:
        raise ValueError(
            "the model was not trained to fill in masked bytes, as by `bytelax train blt-d`"
        )
    if not 1 <= size <= trained:
        raise ValueError(f"the model was trained on blocks of up to {trained}, got {size}")
    return size
