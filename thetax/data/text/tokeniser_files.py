"""Vocabularies on disk, in the files of Hugging Face: `tokenizer.json`, or `vocab.txt` beside
`tokenizer_config.json`.

A file from outside is only data: it is read within a bound, checked piece by piece, and refused
where it asks for something this library does not do, so that no text is cut in another way than its
model learned.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..io.bounded_read import Blob, contents, reading
from .bytepairs import BytePairs
from .tokeniser import Tokeniser
from .wordpiece import INSIDE, LONGEST, UNKNOWN, WordPiece

LIMIT = 32 << 20  # bytes of one file
BRACKETS = 2_000_000  # lists and objects in one file; each takes far more memory than its two bytes
CONFIG = "tokenizer_config.json"
JSON = "tokenizer.json"
LINES = "vocab.txt"


def save_tokeniser(tokeniser: Tokeniser, folder: str | Path) -> None:
    """Writes `tokenizer.json` and what goes with it into a folder; the same vocabulary gives the
    same bytes.

    Each file is there whole or not at all.
    """
    folder = Path(folder)
    whole = tokeniser._engine.to_str(pretty=True)
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    if isinstance(tokeniser, WordPiece):
        config |= {"tokenizer_class": "BertTokenizer", "do_lower_case": tokeniser.lower}
        names = {
            "unk_token": "[UNK]",
            "pad_token": "[PAD]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
        }
        config |= {
            use: name
            for use, name in (names | {"mask_token": "[MASK]"}).items()
            if name in tokeniser.numbers
        }
        bad = next((piece for piece in tokeniser.pieces if "\n" in piece or "\r" in piece), None)
        if bad is not None:
            raise ValueError(
                f"save_tokeniser: the piece {bad!r} breaks a line, and {LINES} has a line for "
                "each piece."
            )
        _write(folder / LINES, "".join(f"{piece}\n" for piece in tokeniser.pieces))
    _write(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    _write(folder / JSON, whole + "\n")


def load_tokeniser(folder: str | Path) -> WordPiece | BytePairs:
    """The vocabulary in a folder of Hugging Face: `tokenizer.json` if it is there, else
    `vocab.txt`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tokeniser(WordPiece(["[UNK]", "a", "##b"]), folder)
    ...     load_tokeniser(folder).tokens("ab a").tolist()
    [1, 2, 1]
    """
    folder = Path(folder)
    if (folder / JSON).exists():
        return read_tokenizer_json(folder / JSON)
    if (folder / LINES).exists():
        config = folder / CONFIG
        return read_vocab(
            folder / LINES,
            lower=_lower(_object(contents(config, limit=LIMIT))) if config.exists() else True,
        )
    raise ValueError(f"{folder}: has neither {JSON} nor {LINES}; give the folder of a vocabulary.")


def read_vocab(file: str | Path | Blob, *, lower: bool = True) -> WordPiece:
    r"""The WordPiece vocabulary of a `vocab.txt`: a piece on each line, the first is number 0.

    >>> read_vocab(Blob("vocab.txt", b"[UNK]\na\n##b\n")).pieces
    ('[UNK]', 'a', '##b')
    """
    name, data = contents(file, limit=LIMIT)
    with reading(name, "a list of pieces"):
        lines = data.decode().replace("\r\n", "\n").split("\n")
        if lines.pop():
            raise ValueError(
                f"{name}: ends in the middle of a line. Fetch it again (a whole one ends with a "
                "new line)."
            )
        return _named(name, lambda: WordPiece(lines, lower=lower))


def read_tokenizer_json(file: str | Path | Blob) -> WordPiece | BytePairs:
    """The vocabulary of a `tokenizer.json`, if it is a WordPiece like BERT's or byte pairs like
    GPT-2's.
    """
    blob = contents(file, limit=LIMIT)
    whole = _object(blob)
    with reading(blob.name, "a tokeniser"):
        model = whole["model"]
        kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
        if kind not in ("WordPiece", "BPE"):
            raise ValueError(
                f"{blob.name}: is a {kind} model; WordPiece and byte-level BPE can be read."
            )
        pieces, special = _pieces(blob.name, model["vocab"], whole.get("added_tokens") or [])
        if kind == "WordPiece":
            _agree(
                blob.name,
                model,
                unk_token=UNKNOWN,
                max_input_chars_per_word=LONGEST,
                continuing_subword_prefix=INSIDE,
            )
            _agree(blob.name, whole["pre_tokenizer"], type="BertPreTokenizer")
            lower = _bert_lower(blob.name, whole["normalizer"])
            return _named(blob.name, lambda: WordPiece(pieces, special=special, lower=lower))
        for option in (
            "dropout",
            "unk_token",
            "continuing_subword_prefix",
            "end_of_word_suffix",
            "byte_fallback",
        ):
            _expect(
                not model.get(option),
                blob.name,
                f"sets {option} to {model.get(option)!r}, which byte pairs have not",
            )
        _expect(
            whole.get("normalizer") is None,
            blob.name,
            "changes the text before it is cut, which is not supported",
        )
        merges = [
            merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]
        ]
        _expect(all(map(_is_pair, merges)), blob.name, "has a merge that is not a pair of pieces")
        digits = _has_digits(blob.name, whole["pre_tokenizer"])
        return _named(blob.name, lambda: BytePairs(pieces, merges, special=special, digits=digits))


def _object(blob: Blob) -> dict[str, Any]:
    """The JSON object in a file."""
    with reading(blob.name, "JSON"):
        if blob.data.count(b"[") + blob.data.count(b"{") > BRACKETS:
            raise ValueError(
                f"{blob.name}: has more than {BRACKETS:,} brackets, no vocabulary has so many; "
                "not read."
            )
        found = json.loads(blob.data.decode())
        _expect(isinstance(found, dict), blob.name, "is no JSON object")
        return found


def _pieces(name: str, vocab: Any, added: Any) -> tuple[list[str], list[str]]:
    """The pieces by number, and the names of those that are matched whole in a text."""
    _expect(isinstance(vocab, dict), name, "has no table of pieces under model.vocab")
    special = []
    numbers = dict(vocab)
    for token in added:
        _agree(name, token, lstrip=False, rstrip=False, single_word=False)
        special.append(token["content"])
        known = numbers.setdefault(token["content"], token["id"])
        _expect(
            known == token["id"],
            name,
            f"gives {token['content']!r} two numbers, {known} and {token['id']}",
        )
    pieces: list[str | None] = [None] * len(numbers)
    for piece, number in numbers.items():
        whole = (
            isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(pieces)
        )
        _expect(
            whole,
            name,
            f"gives {piece!r} the number {number!r}; {len(pieces)} pieces have 0 to "
            f"{len(pieces) - 1}",
        )
        _expect(
            pieces[number] is None,
            name,
            f"gives {piece!r} and {pieces[number]!r} the same number {number}",
        )
        pieces[number] = piece
    return [piece for piece in pieces if piece is not None], special


def _is_pair(merge: Any) -> bool:
    return (
        isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)
    )


def _bert_lower(name: str, normalizer: Mapping[str, Any]) -> bool:
    _agree(name, normalizer, type="BertNormalizer", clean_text=True, handle_chinese_chars=True)
    lower = normalizer["lowercase"]
    _expect(isinstance(lower, bool), name, f"sets lowercase to {lower!r}")
    _expect(
        normalizer.get("strip_accents") in (None, lower),
        name,
        "treats accents and capitals differently",
    )
    return lower


def _lower(config: Mapping[str, Any]) -> bool:
    """Whether `tokenizer_config.json` asks for lower case; BERT's own default is yes."""
    lower = config.get("do_lower_case", True)
    _expect(isinstance(lower, bool), CONFIG, f"sets do_lower_case to {lower!r}")
    _expect(
        config.get("strip_accents") in (None, lower),
        CONFIG,
        "treats accents and capitals differently",
    )
    _expect(
        config.get("tokenize_chinese_chars", True) is True,
        CONFIG,
        "does not cut Chinese characters apart",
    )
    return lower


def _has_digits(name: str, cut: Mapping[str, Any]) -> bool:
    """Whether byte pairs cut digits apart, by the two ways of cutting that are known."""
    steps = cut["pretokenizers"] if cut["type"] == "Sequence" else [cut]
    _agree(name, steps[-1], type="ByteLevel", add_prefix_space=False, use_regex=True)
    if len(steps) == 2:
        _agree(name, steps[0], type="Digits", individual_digits=True)
    _expect(
        len(steps) < 3,
        name,
        f"cuts words in {len(steps)} steps; GPT-2's way, or digits and then it, can be read",
    )
    return len(steps) == 2


def _agree(name: str, found: Mapping[str, Any], **settings: Any) -> None:
    """Refuses a setting that is not the only one known; one that is not there has its usual
    value.
    """
    for setting, value in settings.items():
        came = found.get(setting, value)
        _expect(came == value, name, f"sets {setting} to {came!r}; only {value!r} can be read")


def _expect(true: bool, name: str, trouble: str) -> None:
    if not true:
        raise ValueError(f"{name}: {trouble}.")


def _named(name: str, make: Any) -> Any:
    """What `make` makes; its complaint begins with the file's name."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _write(path: Path, text: str) -> None:
    """Replaces a file at once: under another name first, flushed, then renamed."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
