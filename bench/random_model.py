"""A model of the shape of Qwen2.5-0.5B with random weights and the embedded tokenizer, for measurements of speed.

Shape: https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct, config.json. Its answers mean nothing.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from gristmill.models.embedded import embedded_path


def main() -> None:
    """Write the model directory that is given."""
    folder = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(embedded_path(), local_files_only=True)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rope_theta=1_000_000.0,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
