"""A model of half a megabyte in the GGUF file format, made on the spot: llama's architecture, random weights, few words.

What it says is nonsense, but it is a real model's nonsense: tokenized, sampled, held to grammars, counted. Two of its
habits are wanted: it never picks a lone byte of a character where no grammar forces it to (their rows of the output
matrix are zero), and, made `eager`, it ends as soon as it may, and calls a tool in the fewest words where it must.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WIDTH = 64
FEED_FORWARD = 128
HEADS = 4
LAYERS = 2
CONTEXT = 4096
CONSTANT = 0
"""A dimension that no layer reads or writes: it is the same for every token, so rows of the output can count on it."""

SPECIAL = ("<unk>", "<s>", "</s>")
END = 2
OPENING = "<tool_call>\n"
WORDS = (
    " the",
    " sea",
    " wave",
    " blue",
    " and",
    " light",
    " wind",
    " sand",
    " salt",
    " deep",
    " é",
    " 海",
    " 🌊",
    ",",
    "\n",
)

TEMPLATE = """
{%- if tools %}<|im_start|>system
# Tools
You may call these functions:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content if message.content else "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Prompts and tool calls in the words that the server knows from models of the Qwen and Hermes families."""


def make(path: Path, *, eager: bool) -> None:
    """Write the model to `path`. The same weights each time."""
    dice = np.random.default_rng(7)
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), OPENING]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (1 + len(WORDS))
    opening, first_word = len(tokens) - 1, len(tokens)
    tokens += [word.replace(" ", "\u2581") for word in WORDS]  # SentencePiece's blank

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)

    def matrix(rows: int, columns: int, scale: float) -> np.ndarray:
        return (dice.standard_normal((rows, columns)) * scale).astype(np.float32)

    embeddings = matrix(len(tokens), WIDTH, 1.0)
    embeddings[:, CONSTANT] = 8.0
    output = np.zeros((len(tokens), WIDTH), np.float32)
    output[first_word:, 1:] = matrix(len(WORDS), WIDTH - 1, 1.0)
    if eager:
        output[END, CONSTANT] = 90.0
        output[opening, CONSTANT] = 80.0
        for byte in b'<}":':
            output[len(SPECIAL) + byte, CONSTANT] = 70.0  # no blanks, no second call
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}.{norm}.weight", np.ones(WIDTH, np.float32))
        reading = {name: matrix(WIDTH, WIDTH, 0.3) for name in ("attn_q", "attn_k", "attn_v")}
        reading |= {name: matrix(FEED_FORWARD, WIDTH, 0.3) for name in ("ffn_gate", "ffn_up")}
        writing = {"attn_output": matrix(WIDTH, WIDTH, 0.3), "ffn_down": matrix(WIDTH, FEED_FORWARD, 0.3)}
        for name, weights in reading.items():
            weights[:, CONSTANT] = 0
            writer.add_tensor(f"{block}.{name}.weight", weights)
        for name, weights in writing.items():
            weights[CONSTANT] = 0
            writer.add_tensor(f"{block}.{name}.weight", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
