"""Answers questions with Hugging Face's models, for `serving_beside`.

Runs with an interpreter that has torch and transformers, and without this
package. Reads one JSON object a line, writes one a line:

*   `{"model": "base", "vocab_file": ..., "layers": 0}` makes a model with
    random weights: "small" has the size of MiniLM and reads windows of 384
    tokens, "base" is Longformer base and reads a text at once.
*   `{"queries": [...], "texts": [...]}` sets the records.
*   `{"do": "answer"}` answers them, `{"do": "text"}` only tokenizes them.
"""

import importlib
import json
import sys

# Number of tokens in a window, and of those that it shares with the previous
# window. Both are the defaults of transformers' pipeline.
_WINDOW, _STRIDE = 384, 128
_WINDOWS_AT_ONCE = 8
_MAX_LENGTH = 1 << 15
_BEST, _MAX_ANSWER = 20, 30


class Answerer:
    """A model that finds answers in texts, with its tokenizer."""

    def __init__(self, model: str, vocab_file: str, layers: int):
        self._torch = importlib.import_module("torch")
        self._is_windowed = model == "small"
        with open(vocab_file, encoding="utf-8") as stream:
            vocab = {x.rstrip("\n"): i for i, x in enumerate(stream)}
        self._tokenizer = _make_tokenizer(vocab)
        transformers = importlib.import_module("transformers")
        if self._is_windowed:
            config = transformers.BertConfig(
                vocab_size=len(vocab),
                hidden_size=384,
                num_hidden_layers=layers or 6,
                num_attention_heads=12,
                intermediate_size=1536,
            )
            made = transformers.BertForQuestionAnswering(config)
        else:
            config = transformers.LongformerConfig(
                vocab_size=len(vocab),
                num_hidden_layers=layers or 12,
                attention_window=512,
                max_position_embeddings=_MAX_LENGTH,
                pad_token_id=vocab["[PAD]"],
                sep_token_id=vocab["[SEP]"],
            )
            made = transformers.LongformerForQuestionAnswering(config)
        self._model = made.eval()

    def encode(self, queries: list[str], texts: list[str]):
        """Tokenizes records; a long text becomes several windows."""
        windows = {
            "truncation": "only_second",
            "max_length": _WINDOW,
            "stride": _STRIDE,
            "return_overflowing_tokens": True,
        }
        return self._tokenizer(
            queries,
            texts,
            padding=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            return_tensors="pt",
            **(windows if self._is_windowed else {}),
        )

    def answer(self, queries: list[str], texts: list[str]) -> list[str]:
        """Returns the best span of each text."""
        torch = self._torch
        encoded = self.encode(queries, texts)
        owners = encoded.get("overflow_to_sample_mapping")
        best = [(-float("inf"), "")] * len(texts)
        with torch.inference_mode():
            for start in range(0, len(encoded["input_ids"]), _WINDOWS_AT_ONCE):
                rows = slice(start, start + _WINDOWS_AT_ONCE)
                inputs = {
                    name: encoded[name][rows]
                    for name in ("input_ids", "attention_mask")
                }
                kinds = encoded["token_type_ids"][rows]
                if self._is_windowed:
                    inputs["token_type_ids"] = kinds
                else:
                    # The question attends to the whole text.
                    question = (kinds == 0) & (inputs["attention_mask"] == 1)
                    inputs["global_attention_mask"] = question.long()
                outputs = self._model(**inputs)
                for i in range(len(kinds)):
                    row = start + i
                    owner = row if owners is None else int(owners[row])
                    score, begin, end = self._best_span(
                        outputs.start_logits[i], outputs.end_logits[i], kinds[i]
                    )
                    if score > best[owner][0]:
                        offsets = encoded["offset_mapping"][row]
                        place = slice(
                            int(offsets[begin][0]), int(offsets[end][1])
                        )
                        best[owner] = score, texts[owner][place]
        return [text for _, text in best]

    def _best_span(self, begins, ends, kinds):
        """Returns score, first and last token of the best short span."""
        nothing = -float("inf")
        begins = begins.masked_fill(kinds != 1, nothing).log_softmax(-1)
        ends = ends.masked_fill(kinds != 1, nothing).log_softmax(-1)
        begin, end = (x.topk(min(_BEST, len(x))) for x in (begins, ends))
        scores = begin.values[:, None] + end.values[None, :]
        lengths = end.indices[None, :] - begin.indices[:, None]
        is_span = (lengths >= 0) & (lengths < _MAX_ANSWER)
        scores = scores.masked_fill(~is_span, nothing)
        place = int(scores.argmax())
        first, last = divmod(place, scores.shape[1])
        return (
            float(scores.flatten()[place]),
            int(begin.indices[first]),
            int(end.indices[last]),
        )


def _make_tokenizer(vocab):
    """Makes BERT's tokenizer with a vocabulary."""
    tokenizers = importlib.import_module("tokenizers")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocab, unk_token="[UNK]")
    )
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(x, vocab[x]) for x in ("[CLS]", "[SEP]")],
    )
    names = ("pad", "unk", "cls", "sep", "mask")
    return importlib.import_module("transformers").PreTrainedTokenizerFast(
        tokenizer_object=made,
        **{f"{x}_token": f"[{x.upper()}]" for x in names},
    )


def main() -> None:
    """Executes the objects from standard input until it ends."""
    answerer, records = None, None
    for line in sys.stdin:
        order = json.loads(line)
        made = {}
        if "model" in order:
            answerer = Answerer(**order)
        elif "texts" in order:
            records = order["queries"], order["texts"]
        elif order["do"] == "answer":
            made = {"answers": answerer.answer(*records)}
        else:
            answerer.encode(*records)
        print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
