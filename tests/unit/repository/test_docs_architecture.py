"""docs/architecture.md against the code that it draws and names."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_those_that_the_code_draws(figures: ModuleType) -> None:
    assert figures.drawn(PAGE) == PAGE, "run: make generate"


def test_every_figure_is_on_the_page(figures: ModuleType) -> None:
    assert set(re.findall(r"<!-- figure: (\w+) -->", PAGE)) == set(figures.FIGURES)


def test_modules_that_the_page_names_exist() -> None:
    for name in set(re.findall(r"`((?:core|controller|worker|api|cli)/[\w/]+\.py)`", PAGE)):
        assert (ROOT / "operator" / "lockstep" / name).is_file(), name


def test_functions_that_the_page_names_are_where_it_says() -> None:
    named = re.findall(r"`((?:core|controller|worker)/[\w/]+\.py)` \(((?:`\w+`(?:, )?)+)\)", PAGE)
    assert len(named) > 10
    for module, functions in named:
        text = (ROOT / "operator" / "lockstep" / module).read_text(encoding="utf-8")
        for function in re.findall(r"\w+", functions):
            assert re.search(rf"\bdef {function}\b", text), f"{module} has no {function}"
