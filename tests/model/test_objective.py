"""Latency objectives: in settings, and as a flag of the pipeline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.cli.pipeline.pipeline import objectives
from polydomo.errors import SettingError
from polydomo.model.objective import Objective, read_objective


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("99% in 200ms", Objective(0.2, 0.99)),
        (" 99.95 % IN  2 s ", Objective(2.0, 0.9995)),
        ("100% in 1m", Objective(60.0, 1.0)),
    ],
)
def test_objectives(text: str, wanted: Objective) -> None:
    assert read_objective(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "99%", "200ms", "99 in 200ms", "99% 200ms", "0% in 1s", "101% in 1s", "99% in 0", "99% in soon"]
)
def test_not_objectives(text: str) -> None:
    assert read_objective(text) is None


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_an_objective_is_shown_as_it_is_read(share: int, milliseconds: int) -> None:
    objective = Objective(milliseconds / 1000, share / 10**6)
    assert read_objective(str(objective)) == objective


def test_the_flag_of_the_pipeline() -> None:
    wanted = {"resize": Objective(0.2, 0.999)}
    assert objectives(["resize=99.9% in 200ms"]) == objectives(["resize=200ms:99.9"]) == wanted
    assert objectives(["*=1s"]) == {"*": Objective(1.0, 0.99)}
    for text in ("resize", "=99% in 1s", "resize=fast", "resize=1s:101"):
        with pytest.raises(SettingError, match=r"--objective: .* is not SERVICE=OBJECTIVE"):
            objectives([text])
