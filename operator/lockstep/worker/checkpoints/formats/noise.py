"""Which files may be of a save: by their names what is called as tensors are, by their size whatever is no noise."""

from __future__ import annotations

import os
import re

LARGE = 1 << 20  # bytes, together with what lies beside it: below that it says something of a program

# Tensors, by what their libraries call their files; a number behind a word, as flax and TensorFlow name theirs.
_TENSORS = re.compile(
    r"\.(?:pt|pth|ckpt|safetensors|bin|pkl|npz|distcp|msgpack|h5|hdf5|keras|gguf|pdparams|pdopt)(?:\.(?:tar|gz|zst))?$"
    r"|\.data-\d+-of-\d+$|^(?:checkpoint|ckpt|step|model)[-_]?\d+$",
    re.IGNORECASE,
)
# What a save and what describes a program may both be called: the suffix tells, and of weights the size.
_EITHER = r"(?:config|meta|train|val|valid|validation|test|dataset)\."
_WEIGHTS = r"(?:pt|pth|ckpt|safetensors|msgpack|keras|gguf|h5|hdf5|pdparams|pdopt|distcp)"
_DESCRIPTIONS = re.compile(
    r"^(?:training_args|args|hparams|tokenizer|vocab)\.[a-z]+$"
    rf"|^{_EITHER}(?!{_WEIGHTS}$)[a-z]+$"
    r"|(?:sentencepiece|spiece|spm|bpe)[\w.-]*\.model$"
    r"|^events\.|tfevents|^(?:logs?|stdout|stderr)$",
    re.IGNORECASE,
)
_BY_SIZE = re.compile(rf"^{_EITHER}{_WEIGHTS}$", re.IGNORECASE)
_IN_PASSING = re.compile(
    r"(?:^|[._-])(?:tmp|temp|cached?|incomplete|memory_snapshot|profil(?:e|er|ing)|traces?)(?:[._-]|\d|$)"
    r"|\.part(?:ial)?(?:[._-]|$)|(?:^|[._-])pred(?:iction)?s?[._-]|xplane",
    re.IGNORECASE,
)
_TEXT = "log|out|err|txt|md|rst|json|jsonl|ndjson|csv|tsv|ya?ml|toml|ini|cfg|conf|xml|html?|css|tex|diff|patch"
_CODE = r"py|pyc|pyi|ipynb|js|sh|c|cc|cpp|cu|cuh|h|hpp|o|a|so|ptx|cubin|fatbin|hlo|hlo\.pb|mlir|ll|neff|hsaco|whl|jar"
_PICTURES = "png|jpe?g|gif|bmp|svg|webp|tiff?|pdf|ps|eps|mp4|avi|mkv|mov|webm|wav|flac|mp3|ogg"
_TRACES = "prof|pstats|trace|folded|nsys-rep|qdrep|qdstrm|ncu-rep|hprof|perf|wandb"
_TABLES = "parquet|arrow|feather|tfrecords?|idx|db|sqlite3?|lock|pid|sock|swp|bak"
_NO_SAVE = re.compile(
    rf"\.(?:{_TEXT}|{_CODE}|{_PICTURES}|{_TRACES}|{_TABLES})(?:\.\d+)?(?:\.(?:gz|zst|xz|bz2|zip))?$|~$"
    r"|^core(?:\.|$|[.-][\w.-]*\d$)",
    re.IGNORECASE,
)
_NOT_LOOKED_INTO = re.compile(
    r"^\.|^tmp|^(?:models|datasets)--|^(?:hub|wandb|mlruns|site-packages|__pycache__)$|\.tmp$"
    r"|(?:^|[._-])(?:cache[ds]?|profil(?:e|er|ing)s?|traces?|memory_snapshots?)(?:[._-]|\d|$)",
    re.IGNORECASE,
)


def is_noise(name: str) -> bool:
    """A file of that name is no save, whatever its size: a log, a trace, a picture, a description, something hidden."""
    is_no_save = _NO_SAVE.search(name) and not is_tensors(name)
    return name.startswith(".") or bool(is_no_save or _DESCRIPTIONS.search(name) or _IN_PASSING.search(name))


def is_tensors(name: str) -> bool:
    """Called as libraries call files of tensors."""
    return bool(_TENSORS.search(name))


def is_a_save_by_name(name: str) -> bool:
    """The name alone says so: it is called as tensors are, and not as what describes a program is as well."""
    return is_tensors(name) and not _BY_SIZE.search(name)


def is_looked_into(directory: str) -> bool:
    """A directory of that name may hold a save: no cache, no profile, nothing hidden or temporary."""
    return not _NOT_LOOKED_INTO.search(directory)


def may_hold_a_save(path: str, most: int) -> bool:
    """There are tensors in the directory, or files that are large together. True also where there are more than
    ``most`` names."""
    size = 0
    for directory, directories, names in os.walk(path):
        directories[:] = filter(is_looked_into, directories)
        if any(map(is_tensors, names)):
            return True
        for name in names:
            size += 0 if is_noise(name) else _size(os.path.join(directory, name))
        most -= 1 + len(names)
        if size >= LARGE or most < 0:
            return True
    return False


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
