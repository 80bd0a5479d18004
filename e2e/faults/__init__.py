"""The fault menu: what may go wrong with a gang, at every moment of its life, and how each of it has to end."""

from pathlib import Path


def trainer_path() -> Path:
    """The program that trains. Process nodes see the files of this machine."""
    return Path(__file__).with_name("trainer.py")
