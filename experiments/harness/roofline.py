"""What the passes that a method made take at least: reading, or multiplying."""

from bytelax import methods
from experiments.harness import floor


def seconds(model, contestant, stats, machine, *, rows, context, itemsize=4, patcher_itemsize=None):
    """Least seconds of the passes in `stats`.

    Args:
      model: the target.
      contestant: the method and its settings.
      stats: of its runs, as `Runs.stats`.
      machine: what reads and multiplies; with infinitely many operations per second only reading
        counts.
      rows: of the batch.
      context: bytes of each prompt.
      itemsize: bytes of a number.
      patcher_itemsize: bytes of a number of the entropy model; None is `itemsize`.
    """
    name, settings = contestant
    small = settings.get("draft_model")
    length = len(stats.drafted_by_position)
    rounds = stats.batch_windows

    def takes(network, *, passes, width=1, part=1.0, of=model):
        bytes_per_patch = stats.bytes / stats.patches if stats.patches else 1
        cached = floor.caches(of, context, bytes_per_patch=bytes_per_patch)
        return floor.seconds(
            machine, part * getattr(floor.weights(of), network), part * getattr(cached, network),
            passes=passes, rows=rows, width=width,
            itemsize=(patcher_itemsize or itemsize) if network == "patcher" else itemsize,
        )  # fmt: skip

    total = 0.0
    if small is not None:
        made = stats.draft_model_passes / stats.rounds
        total += takes("decoder", passes=rounds * made, of=small)
    if not stats.patches:  # a byte transformer
        layers = model.config.trunk.layers
        drafting, verified = layer_shares(layers, settings, name, length)
        total += takes("decoder", passes=rounds * drafting)
        return total + takes("decoder", passes=rounds, width=length + 1, part=verified)
    if (
        small is None and stats.draft_model_passes
    ):  # of a layer that sits on the model; its cache is small
        built, own = methods.build(name, model, **settings)
        total += floor.seconds(
            machine, built.drafter.weights_read(own, model.held), 0,
            passes=rounds * stats.draft_model_passes / stats.rounds, rows=rows, itemsize=itemsize,
        )  # fmt: skip
    drafting = (stats.decoder_passes - stats.rounds) / stats.rounds
    total += takes("decoder", passes=rounds * drafting, width=settings.get("block_size", 1))
    total += takes("encoder", passes=rounds * stats.draft_encoder_passes / stats.rounds)
    for network in ("decoder", "encoder", "patcher"):
        total += takes(network, passes=rounds, width=length + 1)
    closed = max(1, (length + 1) * stats.patches / stats.bytes) if length else 1
    return total + takes("global_", passes=stats.global_chunks, width=closed)


def layer_shares(layers, settings, method, length):
    """Of the model's layers: those run to draft, counted once a pass, and to verify."""
    exit_layer = settings.get("exit_layer", layers // 2)
    handed_over = settings.get("verify_from") != "embedding"
    passes = {
        "early-exit": length + handed_over,
        "composed": length // 2 + handed_over,
        "layer-skip": length,
        "eagle": length,
    }.get(method, 0)
    part = {"layer-skip": layers - _skipped(layers, settings), "eagle": 1}.get(method, exit_layer)
    verified = layers - exit_layer * (method in ("early-exit", "composed") and handed_over)
    return passes * part / layers, verified / layers


def _skipped(layers, settings):
    """Layers' worth of weights; an attention has half as many as a SwiGLU."""
    every_second = range(1, layers - 1, 2)
    attention = settings.get("skip_attention", every_second)
    return (len(attention) + 2 * len(settings.get("skip_mlp", every_second))) / 3
