"""What the pages say in numbers and names is what the code says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo import limits
from polydomo.model import outcomes
from polydomo.server.settings import services
from polydomo.server.settings.settings import Settings, load, variable_of

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")

SETTINGS = {row.key: row.default for row in Settings().describe()}
SECTIONS = {key.partition(".")[0] for key in SETTINGS if "." in key}


def rows(page: str, heading: str) -> Iterator[list[str]]:
    """The cells of the first table under a heading."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None, heading
    for line in table[0].splitlines()[2:]:
        yield [cell.strip() for cell in line[1:-1].split("|")]


def amount(text: str) -> float:
    """A number as the pages write it: ``1,024``, ``64 MiB``, ``10 s``."""
    number, _, unit = text.replace(",", "").partition(" ")
    return float(number) * {"": 1, "s": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def test_every_bound_is_a_number_of_limits_and_its_setting_has_it_as_default() -> None:
    found = list(rows(ARCHITECTURE, "Bounds"))
    assert len(found) > 15
    plain = Settings()
    for name, value, setting, _ in found:
        number = getattr(limits, name.strip("`"))
        assert number == amount(value), name
        if setting:
            assert plain.get(setting.strip("`")) == number, setting


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md", "docs/operations.md"])
def test_every_number_of_limits_that_is_named_exists(page: str) -> None:
    for name in re.findall(r"`([A-Z]+_[A-Z_]+)`", (ROOT / page).read_text(encoding="utf-8")):
        assert hasattr(limits, name) or name.startswith("POLYDOMO_"), name


def test_every_outcome_of_a_request_is_documented() -> None:
    for outcome in outcomes.OUTCOMES:
        assert f"`{outcome}`" in ARCHITECTURE
        assert f"`{outcome}`" in OPERATIONS or outcome == outcomes.OK


def test_every_file_that_is_named_exists() -> None:
    names = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", ARCHITECTURE)
    assert len(names) > 15
    for name in names:
        assert (ROOT / "src" / "polydomo" / name).is_file() or (ROOT / name).is_file(), name


def test_every_layer_is_documented() -> None:
    from tests.test_layers import LAYERS

    picture = ARCHITECTURE.split("```")[1]
    assert [line.split()[0] for line in picture.strip().splitlines()] == LAYERS


def test_every_setting_that_is_named_exists() -> None:
    inside = {
        key.replace(".", "_") for key in SETTINGS if "." in key
    }  # as the code has them, where nobody can set them
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for key in re.findall(r"`([a-z]+[._][a-z_]+)(?: = [^`]*)?`", path.read_text(encoding="utf-8")):
            if not key.endswith(".py") and key.partition(".")[0] in SECTIONS:
                assert key in SETTINGS or (key in services.MOVED and path.name == "operations.md"), (path, key)
            assert key not in inside, (path, key)
    variables = {variable_of(key) for key in SETTINGS} | {"POLYDOMO_CONFIG", "POLYDOMO_TO"}
    for name in re.findall(r"POLYDOMO_[A-Z_]+\b", OPERATIONS):
        assert name in variables, name


def test_every_setting_is_documented() -> None:
    observed = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert [key for key in SETTINGS if f"`{key}" not in observed] == []


def test_the_settings_that_are_listed_have_their_defaults() -> None:
    found = list(rows(OPERATIONS, "Important settings"))
    assert len(found) > 10
    for key, default, _ in found:
        assert SETTINGS[key.strip("`")] == default.strip("`"), key


def test_the_example_file_is_taken(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", OPERATIONS, re.DOTALL)
    assert blocks
    for text in blocks:
        (tmp_path / "polydomo.toml").write_text(text)
        settings = load(tmp_path / "polydomo.toml")
        assert settings.sources and settings.notices == []


def test_every_option_of_services_is_documented() -> None:
    table = OPERATIONS.split("\n### Options of services\n")[1].split("\n\n")[1]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(services.OPTIONS)
    moved = OPERATIONS.split("Earlier versions had a key for each: ")[1].split("They still count")[0]
    assert set(re.findall(r"`([a-z.]+)`", moved)) == set(services.MOVED)


def test_every_dependency_has_its_reason() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    observed = ARCHITECTURE.split("\n## Dependencies\n", 1)[1]
    wanted = [*project["dependencies"], *(w for extra in project["optional-dependencies"].values() for w in extra)]
    for requirement in wanted:
        name = re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0]
        assert name == "polydomo" or re.search(rf"\b{name}\b", observed) or name.startswith("pytest-"), name


def test_the_figures_of_the_comparison_are_those_that_were_measured() -> None:
    compared = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    measured = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    number = r"\d[\d,.]*"
    figures = re.findall(rf"{number}(?: to {number})? (?:us|ms)\b|{number}(?=/s)", compared)
    assert len(figures) > 20 and [figure for figure in figures if figure not in measured] == []
