"""Saving and loading the model in the published nested Hugging Face layout."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import Config

PREFIX = "model.language_model."
SHARD_BYTES = 15 << 20


def published_name(name: str) -> str:
    return name if name.startswith("mtp.") else PREFIX + name


def config_json(c: Config, vocab_ids: dict) -> dict:
    text = {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "bos_token_id": None, "eos_token_id": vocab_ids["<|im_end|>"], "pad_token_id": vocab_ids["<|endoftext|>"],
        "dtype": "bfloat16", "full_attention_interval": c.interval, "head_dim": c.head_dim, "hidden_act": "silu", "hidden_size": c.hidden, "initializer_range": 0.02,
        "layer_types": ["full_attention" if c.full(i) else "linear_attention" for i in range(c.layers)], "linear_conv_kernel_dim": c.conv, "linear_key_head_dim": c.delta_dim,
        "linear_num_key_heads": c.key_heads, "linear_num_value_heads": c.value_heads, "linear_value_head_dim": c.delta_dim, "mamba_ssm_dtype": "float32", "max_position_embeddings": 16384,
        "model_type": "qwen3_5_moe_text", "moe_intermediate_size": c.expert_width, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False, "num_attention_heads": c.heads,
        "num_experts": c.experts, "num_experts_per_tok": c.chosen, "num_hidden_layers": c.layers, "num_key_value_heads": c.kv_heads, "rms_norm_eps": c.eps, "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": c.shared_width, "tie_word_embeddings": True, "use_cache": True, "vocab_size": c.vocab,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": c.rotary / c.head_dim, "rope_theta": c.theta, "rope_type": "default"},
    }
    return {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": text, "tie_word_embeddings": True, "image_token_id": vocab_ids["<|image_pad|>"],
            "video_token_id": vocab_ids["<|video_pad|>"], "vision_start_token_id": vocab_ids["<|vision_start|>"], "vision_end_token_id": vocab_ids["<|vision_end|>"],
            "vision_config": {"depth": 0, "hidden_size": 128, "model_type": "qwen3_5_moe"}, "transformers_version": "5.17.0"}


def generation_json(vocab_ids: dict) -> dict:
    return {"bos_token_id": None, "do_sample": True, "eos_token_id": [vocab_ids["<|im_end|>"], vocab_ids["<|endoftext|>"]], "pad_token_id": vocab_ids["<|endoftext|>"], "temperature": 0.3, "top_k": 20, "top_p": 0.9}


def save(parameters: dict, c: Config, folder, vocab_ids: dict, files: dict) -> None:
    """Weights (BF16 matrices, F32 A_log) in shards, and the small files. `files` maps names to text."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards, size = [{}], 0
    for name, value in parameters.items():
        value = value.detach().cpu()
        value = (value.float() if name.endswith("A_log") else value.bfloat16()).contiguous()
        if size + value.nbytes > SHARD_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][published_name(name)] = value
        size += value.nbytes
    index = {"metadata": {"total_size": sum(t.nbytes for s in shards for t in s.values())}, "weight_map": {}}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        index["weight_map"].update({n: file for n in shard})
    write = lambda name, value: (folder / name).write_text(value if isinstance(value, str) else json.dumps(value, indent=1) + "\n", encoding="utf-8")
    write("model.safetensors.index.json", index)
    write("config.json", config_json(c, vocab_ids))
    write("generation_config.json", generation_json(vocab_ids))
    for name, text in files.items():
        write(name, text)


def load(folder, c: Config, device: str = "cpu") -> dict:
    """The parameters of a saved model, in f32."""
    found = {}
    for file in sorted(Path(folder).glob("model*.safetensors")):
        found.update(load_file(file))
    return {name: found[published_name(name)].float().to(device).requires_grad_(True) for name in c.shapes()}
