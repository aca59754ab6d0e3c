"""The prompts fit the model, and differ from run to run."""

from scripts.verification.prompts import LONG_LINES, prompts


def text(prompt):
    return prompt.messages[-1][1]


def test_they_are_of_the_kinds_that_fail():
    short, long, special, turns = prompts("salt", 8192)
    assert len(text(long).splitlines()) > LONG_LINES > len(text(short).splitlines())
    assert {"😀", "你", "\u200b", "{", "ש"} <= set(text(special))
    assert [role for role, _ in turns.messages].count("user") == 2


def test_the_long_one_fits_a_small_model():
    whole, half, least = (len(text(prompts("s", size)[1]).splitlines()) for size in (None, 1024, 64))
    assert whole > half > least > 0


def test_no_cache_of_another_run_answers():
    assert all(a.messages[0] != b.messages[0] for a, b in zip(prompts("a", 99), prompts("b", 99), strict=True))
