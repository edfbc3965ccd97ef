"""`bytelax patches`: where an entropy model cuts texts."""

import sys

from bytelax import checkpoints
from bytelax.commands.json_line import check_json, json_line
from bytelax.commands.patches import Patches
from bytelax.commands.progress_bar import progress_bar
from bytelax.commands.running.loading import overrides
from bytelax.commands.text_files import text_files
from bytelax.loading import load_patcher, model_directory
from bytelax.models.configs import ByteLMConfig
from bytelax.patcher import patches


def run(flags: Patches) -> None:
    check_json(flags, "entropies")
    files = text_files(flags.files)
    changes = overrides(flags.overrides)
    patcher = load_patcher(flags.model, **changes)
    if "patching_threshold" not in changes:
        _tell_default(flags.model, patcher.rule.threshold)
    with progress_bar("patches", sum(file.size for file in files)) as advance:
        texts = (file.read() for file in files)
        found = patches(patcher, texts, **vars(flags.windows), progress=advance)
        for file, cut in zip(files, found, strict=True):
            _print(flags, file.name, cut)


def _tell_default(location, threshold):
    """Says on standard error which threshold is taken where the model has none."""
    if isinstance(checkpoints.read_config(model_directory(location)), ByteLMConfig):
        print(
            f"{location} is a byte transformer and has no threshold: taking that of the released "
            f"models, {threshold:.4g} nats; --override patching_threshold=... sets another",
            file=sys.stderr,
        )


def _print(flags, name, cut):
    count, lengths = len(cut.entropies), cut.lengths
    mean = count / len(lengths)
    if not flags.json:
        told = f"{mean:.3f} bytes a patch, {len(lengths):,} patches, {count:,} bytes: {name}"
        print(told, flush=True)
        return
    fields = {"file": name, "bytes": count, "bytes_per_patch": mean, "lengths": lengths}
    if flags.entropies:
        fields["entropies"] = cut.entropies.tolist()
    print(json_line(fields), flush=True)
