"""The standard error of a score is that of episodes which all rows of a table share."""

import math

import numpy as np
import pytest

from an_control.learning.evaluation.scores import ScoreRow, format_score_table

RNG = np.random.default_rng(0)


def rows_of(starts, noise):
    """Rows whose episodes begin at the same starts, which decide much of each return."""
    random, teacher, student = (
        ScoreRow(name, tuple(mean + weight * starts + noise * RNG.normal(size=len(starts))), 1.0)
        for name, mean, weight in (("random", 0.0, 1.0), ("teacher", 100.0, 1.0), ("x", 80.0, 1.0))
    )
    return random, teacher, student


def test_the_error_of_a_score_is_how_far_scores_of_other_episodes_scatter():
    made = [rows_of(30.0 * RNG.normal(size=50), 5.0) for _ in range(400)]
    scatter = np.std(
        [x.compute_score_relative_to_teacher(random, teacher) for random, teacher, x in made]
    )
    errors = [x.compute_standard_error_of_score(random, teacher) for random, teacher, x in made]
    assert np.mean(errors) == pytest.approx(scatter, rel=0.1)
    alone = np.mean([x.standard_error / 100.0 for _, _, x in made])
    assert alone > 3.0 * scatter, "the starts would count as noise"


def test_rows_with_fewer_or_failed_episodes_have_an_error_that_fits_too():
    scores, errors = [], []
    for _ in range(400):
        random, teacher, student = rows_of(30.0 * RNG.normal(size=60), 5.0)
        returns = (*student.returns[:9], math.nan, *student.returns[10:20])
        student = ScoreRow("x", returns, 1.0)
        scores.append(student.compute_score_relative_to_teacher(random, teacher))
        errors.append(student.compute_standard_error_of_score(random, teacher))
    assert np.mean(errors) == pytest.approx(np.std(scores), rel=0.15)


def test_a_table_shows_no_error_of_the_scores_that_are_0_and_1_by_definition():
    table = format_score_table([
        ScoreRow("random policy", (0.0, 2.0), 5.0),
        ScoreRow("teacher", (10.0, 12.0), 5.0),
        ScoreRow("student", (5.0, math.nan, 7.0), 5.0),
    ]).splitlines()  # fmt: skip
    assert table[2:4] == [
        "| random policy | 1.0 +- 1.0 | 0.0% | 2 |",
        "| teacher | 11.0 +- 1.0 | 100.0% | 2 |",
    ]
    assert table[4].startswith("| student | 6.0 +- 1.0 | 50.0% +- ") and table[4].endswith("| 2 |")
