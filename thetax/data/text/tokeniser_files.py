"""Tokenisers on disk, in the file formats of Hugging Face: `tokenizer.json` or `vocab.txt`.

Files are untrusted: they are read up to a size limit and checked entry by entry. A file with a
setting that is not supported is refused, so a text is never split differently from the way its
model was trained.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..io.bounded_read import Blob, contents, reading
from .byte_pair_encoding import BytePairEncoding
from .tokeniser import Tokeniser
from .wordpiece import CONTINUATION, MAX_WORD_LENGTH, UNKNOWN, WordPiece

T = TypeVar("T")

MAX_BYTES = 32 << 20  # of one file
# Lists and objects of one file: each takes far more memory than its two brackets.
MAX_BRACKETS = 2_000_000
CONFIG_FILE = "tokenizer_config.json"
JSON_FILE = "tokenizer.json"
VOCAB_FILE = "vocab.txt"


def save_tokeniser(tokeniser: Tokeniser, folder: str | Path) -> None:
    """Writes `tokenizer.json` and its companion files into a folder.

    The same tokeniser always gives the same bytes. Each file is replaced atomically.
    """
    folder = Path(folder)
    tokeniser_json = tokeniser._engine.to_str(pretty=True)
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    if isinstance(tokeniser, WordPiece):
        config |= {"tokenizer_class": "BertTokenizer", "do_lower_case": tokeniser.lowercase}
        roles = {
            "unk_token": "[UNK]",
            "pad_token": "[PAD]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        }
        config |= {role: name for role, name in roles.items() if name in tokeniser.piece_ids}
        for piece in tokeniser.pieces:
            if "\n" in piece or "\r" in piece:
                raise ValueError(
                    f"save_tokeniser: the piece {piece!r} contains a line break, but {VOCAB_FILE} "
                    "stores one piece per line."
                )
        _write(folder / VOCAB_FILE, "".join(f"{piece}\n" for piece in tokeniser.pieces))
    _write(folder / CONFIG_FILE, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    _write(folder / JSON_FILE, tokeniser_json + "\n")


def load_tokeniser(folder: str | Path) -> WordPiece | BytePairEncoding:
    """The tokeniser in a Hugging Face folder: from `tokenizer.json` if it exists, else `vocab.txt`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tokeniser(WordPiece(["[UNK]", "a", "##b"]), folder)
    ...     load_tokeniser(folder).tokens("ab a").tolist()
    [1, 2, 1]
    """
    folder = Path(folder)
    if (folder / JSON_FILE).exists():
        return read_tokenizer_json(folder / JSON_FILE)
    if (folder / VOCAB_FILE).exists():
        config = folder / CONFIG_FILE
        lowercase = _config_lowercase(_read_json(config)) if config.exists() else True
        return read_vocab(folder / VOCAB_FILE, lowercase=lowercase)
    raise ValueError(
        f"{folder}: has neither {JSON_FILE} nor {VOCAB_FILE}. Give the folder of a tokeniser."
    )


def read_vocab(file: str | Path | Blob, *, lowercase: bool = True) -> WordPiece:
    r"""The WordPiece vocabulary in a `vocab.txt`: one piece per line, in the order of their ids.

    >>> read_vocab(Blob("vocab.txt", b"[UNK]\na\n##b\n")).pieces
    ('[UNK]', 'a', '##b')
    """
    name, data = contents(file, limit=MAX_BYTES)
    with reading(name, "a list of pieces"):
        lines = data.decode().replace("\r\n", "\n").split("\n")
        if lines.pop():
            raise ValueError(
                f"{name}: does not end with a newline, so it is probably truncated. Download it "
                "again."
            )
        return _name_file(name, lambda: WordPiece(lines, lowercase=lowercase))


def read_tokenizer_json(file: str | Path | Blob) -> WordPiece | BytePairEncoding:
    """The tokeniser in a `tokenizer.json`, if it is a WordPiece as in BERT or a byte-level
    byte-pair encoding as in GPT-2.
    """
    blob = contents(file, limit=MAX_BYTES)
    settings = _read_json(blob)
    with reading(blob.name, "a tokeniser"):
        model = settings["model"]
        kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
        pieces, special_tokens = _read_pieces(
            blob.name, model["vocab"], settings.get("added_tokens") or []
        )
        if kind == "WordPiece":
            return _read_wordpiece(blob.name, settings, pieces, special_tokens)
        if kind == "BPE":
            return _read_byte_pair_encoding(blob.name, settings, pieces, special_tokens)
        raise ValueError(
            f"{blob.name}: is a {kind} model; only WordPiece and byte-level BPE are supported."
        )


def _read_wordpiece(
    name: str, settings: Mapping[str, Any], pieces: list[str], special_tokens: list[str]
) -> WordPiece:
    _expect_settings(
        name,
        settings["model"],
        unk_token=UNKNOWN,
        max_input_chars_per_word=MAX_WORD_LENGTH,
        continuing_subword_prefix=CONTINUATION,
    )
    _expect_settings(name, settings["pre_tokenizer"], type="BertPreTokenizer")
    lowercase = _normaliser_lowercase(name, settings["normalizer"])
    return _name_file(
        name, lambda: WordPiece(pieces, special_tokens=special_tokens, lowercase=lowercase)
    )


def _read_byte_pair_encoding(
    name: str, settings: Mapping[str, Any], pieces: list[str], special_tokens: list[str]
) -> BytePairEncoding:
    model = settings["model"]
    for option in (
        "dropout",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
    ):
        _expect(
            not model.get(option),
            name,
            f"sets {option} to {model.get(option)!r}, which is not supported",
        )
    _expect(
        settings.get("normalizer") is None,
        name,
        "sets a normalizer, which is not supported for byte-level BPE",
    )
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    _expect(all(map(_is_pair, merges)), name, "has a merge that is not a pair of pieces")
    split_digits = _splits_digits(name, settings["pre_tokenizer"])
    return _name_file(
        name,
        lambda: BytePairEncoding(
            pieces, merges, special_tokens=special_tokens, split_digits=split_digits
        ),
    )


def _read_json(file: str | Path | Blob) -> dict[str, Any]:
    """The JSON object in a file."""
    blob = contents(file, limit=MAX_BYTES)
    with reading(blob.name, "JSON"):
        if blob.data.count(b"[") + blob.data.count(b"{") > MAX_BRACKETS:
            raise ValueError(
                f"{blob.name}: has more than {MAX_BRACKETS:,} brackets, far more than a tokeniser "
                "needs; it was not read."
            )
        value = json.loads(blob.data.decode())
        _expect(isinstance(value, dict), blob.name, "does not hold a JSON object")
        return value


def _read_pieces(name: str, vocab: Any, added_tokens: Any) -> tuple[list[str], list[str]]:
    """The pieces in the order of their ids, and the names of the special tokens."""
    _expect(isinstance(vocab, dict), name, "has no table of pieces under model.vocab")
    special_tokens = []
    ids = dict(vocab)
    for token in added_tokens:
        _expect_settings(name, token, lstrip=False, rstrip=False, single_word=False)
        special_tokens.append(token["content"])
        first_id = ids.setdefault(token["content"], token["id"])
        _expect(
            first_id == token["id"],
            name,
            f"gives {token['content']!r} two ids, {first_id} and {token['id']}",
        )
    pieces: list[str | None] = [None] * len(ids)
    for piece, i in ids.items():
        _expect(
            isinstance(i, int) and not isinstance(i, bool) and 0 <= i < len(pieces),
            name,
            f"gives {piece!r} the id {i!r}; the ids of {len(pieces)} pieces must be 0 to "
            f"{len(pieces) - 1}",
        )
        _expect(pieces[i] is None, name, f"gives {piece!r} and {pieces[i]!r} the same id {i}")
        pieces[i] = piece
    return [piece for piece in pieces if piece is not None], special_tokens


def _is_pair(merge: Any) -> bool:
    return (
        isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)
    )


def _normaliser_lowercase(name: str, normaliser: Mapping[str, Any]) -> bool:
    """Whether the normaliser of a `tokenizer.json` converts to lower case."""
    _expect_settings(
        name, normaliser, type="BertNormalizer", clean_text=True, handle_chinese_chars=True
    )
    return _check_lowercase(name, "lowercase", normaliser["lowercase"], normaliser)


def _config_lowercase(config: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer_config.json` requests lower case; the default of BERT is True."""
    _expect(
        config.get("tokenize_chinese_chars", True) is True,
        CONFIG_FILE,
        "turns off the splitting of Chinese characters, which is not supported",
    )
    return _check_lowercase(CONFIG_FILE, "do_lower_case", config.get("do_lower_case", True), config)


def _check_lowercase(name: str, setting: str, value: Any, settings: Mapping[str, Any]) -> bool:
    _expect(isinstance(value, bool), name, f"sets {setting} to {value!r}, which is not a boolean")
    _expect(
        settings.get("strip_accents") in (None, value),
        name,
        f"sets strip_accents differently from {setting}, which is not supported",
    )
    return value


def _splits_digits(name: str, pre_tokenizer: Mapping[str, Any]) -> bool:
    """Whether a byte-level pre-tokeniser splits numbers into digits first."""
    steps = (
        pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    )
    _expect_settings(name, steps[-1], type="ByteLevel", add_prefix_space=False, use_regex=True)
    if len(steps) == 2:
        _expect_settings(name, steps[0], type="Digits", individual_digits=True)
    _expect(
        len(steps) < 3,
        name,
        f"has a pre-tokeniser of {len(steps)} steps; only ByteLevel, or Digits and then ByteLevel, "
        "are supported",
    )
    return len(steps) == 2


def _expect_settings(name: str, settings: Mapping[str, Any], **supported: Any) -> None:
    """Refuses a setting whose value is not the supported one; a missing setting is accepted."""
    for setting, value in supported.items():
        given = settings.get(setting, value)
        _expect(given == value, name, f"sets {setting} to {given!r}; only {value!r} is supported")


def _expect(condition: bool, name: str, problem: str) -> None:
    if not condition:
        raise ValueError(f"{name}: {problem}.")


def _name_file(name: str, create: Callable[[], T]) -> T:
    """The result of `create`; a `ValueError` gets the name of the file as its prefix."""
    try:
        return create()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _write(path: Path, text: str) -> None:
    """Writes a temporary file, flushes it to disk and renames it to `path`."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
