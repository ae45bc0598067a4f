"""The golden model cut down to its first layers: the same code runs, in a third of the time."""

import json
import pathlib
import shutil

from safetensors import safe_open
from safetensors.numpy import save_file

from conftest import TINY

LAYERS = 4  # three of the delta net and one of attention
EXPERTS = 1  # of which a token uses


def _layer(name):
    return int(name.partition(".layers.")[2].partition(".")[0] or 0)


def write(directory):
    directory = pathlib.Path(directory)
    for name in ("chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, directory / name)
    config = json.loads((TINY / "config.json").read_text())
    text = config["text_config"]
    text["num_hidden_layers"] = LAYERS
    text["layer_types"] = text["layer_types"][:LAYERS]
    text["num_experts_per_tok"] = EXPERTS
    meta = config["quantization_config"]["layer_meta"]
    config["quantization_config"]["layer_meta"] = {k: v for k, v in meta.items() if _layer(k) < LAYERS}
    (directory / "config.json").write_text(json.dumps(config))
    index = json.loads((TINY / "model.safetensors.index.json").read_text())["weight_map"]
    kept = {}
    for shard in sorted(set(index.values())):
        with safe_open(TINY / shard, "numpy") as tensors:
            for name in tensors.keys():
                if name.startswith("mtp.") or _layer(name) < LAYERS:
                    kept[name] = tensors.get_tensor(name)
    save_file(kept, directory / "model.safetensors")
    return directory
