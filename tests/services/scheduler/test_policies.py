"""Policies: the lowest score is the worker to choose."""

from services.scheduler.load import View
from services.scheduler.policies import DEFAULT, POLICIES, fewest_queued_tokens, least_full


def view(requests=0, slots=8, free=100, blocks=100, queued=0):
    return View(requests, slots, free, blocks, queued)


def test_prefill_goes_where_the_fewest_tokens_wait(ask):
    request = ask("r", "prefill")
    assert fewest_queued_tokens(request, view(requests=7, queued=10)) < fewest_queued_tokens(request, view(queued=11))
    assert fewest_queued_tokens(request, view(requests=1)) < fewest_queued_tokens(request, view(requests=2))


def test_decode_goes_where_the_scarcer_resource_is_more_free(ask):
    request = ask("r", "decode")
    assert least_full(request, view(requests=2)) < least_full(request, view(requests=4))
    assert least_full(request, view(requests=2)) < least_full(request, view(requests=1, free=60))


def test_the_defaults_are_registered():
    assert set(DEFAULT) == {"prefill", "decode"}
    assert all(name in POLICIES for name in DEFAULT.values())
