"""Facts of gateways that behave badly, over real sockets: each is recorded, none is raised."""

import asyncio
import json

import pytest

from scripts.verification.client import Asker
from scripts.verification.gather import Target, gather
from scripts.verification.prompts import Prompt
from services.common.errors import ModelNotFound, Saturated, Unauthorized
from services.common.http_client import HttpClient
from services.common.http_server import App, Response, Stream, json_response
from tests.services.common.serving import serving

PROMPT = Prompt("short", (("user", "Hello"),), 8)


def chunk(text=None, finish=None, usage=None):
    choices = [] if text is None and finish is None else [{"delta": {"content": text}, "finish_reason": finish}]
    return b"data: " + json.dumps({"choices": choices, "usage": usage}).encode() + b"\n\n"


USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
GOOD = [b": keepalive\n\n", chunk("Hel"), chunk("lo"), chunk(None, "stop"), chunk(usage=USAGE), b"data: [DONE]\n\n"]


class Gateway:
    """Answers what it is told to; `events` are those of a stream."""

    def __init__(self, events=GOOD, whole=None, models=None):
        self.events, self.whole = events, whole
        self.models = {"data": [{"id": "m"}]} if models is None else models
        self.app = App()
        self.app.route("GET", "/v1/models", self._get_models)
        self.app.route("POST", "/v1/chat/completions", self._chat)

    async def _get_models(self, _request):
        return json_response(self.models)

    async def _chat(self, request):
        if request.header("authorization") != "Bearer right":
            raise Unauthorized("the key is not known")
        body = await request.json(dict)
        if body["model"] != "m":
            raise ModelNotFound("no such model")
        if not body["stream"] if "stream" in body else True:
            if isinstance(self.whole, Exception):
                raise self.whole
            answer = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}], "usage": USAGE}
            return Response(self.whole) if self.whole else json_response(answer)

        async def items():
            for event in self.events:
                yield event

        return Stream(items())


def ask(gateway, streamed, timeout=10.0):
    async def scenario():
        client = HttpClient()
        async with serving(gateway.app) as served:
            try:
                return await Asker(client, served.url, "right", timeout).ask("m", PROMPT, streamed)
            finally:
                await client.close()

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_good_stream_and_a_good_answer_say_the_same():
    streamed, whole = ask(Gateway(), True), ask(Gateway(), False)
    for answer in (streamed, whole):
        assert (answer.status, answer.error, answer.text, answer.finish_reason) == (200, "", "Hello", "stop")
        assert (answer.prompt_tokens, answer.completion_tokens, answer.max_tokens) == (5, 2, 8)
        assert answer.ended
    assert 0 < streamed.first_at <= streamed.last_at


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([chunk("Hel")], ""),
        ([chunk("Hel"), b'data: {"error": {"message": "gone", "type": "t", "code": "engine_failed"}}\n\n'], "gone"),
        ([b"data: {nonsense\n\n"], "no valid answer"),
        ([b"<html>it works</html>"], ""),
    ],
)
def test_a_stream_that_has_no_end(events, said):
    answer = ask(Gateway(events), True)
    assert answer.status == 200
    assert not answer.ended
    assert said in answer.error


def test_answers_that_are_none():
    assert "no valid answer" in ask(Gateway(whole=b"<html>"), False).error
    full = ask(Gateway(whole=Saturated()), False)
    assert full.status == 429
    assert full.error.startswith("saturated: ")


def test_a_gateway_that_is_not_there_and_one_that_never_answers():
    async def nowhere():
        return await Asker(HttpClient(), "http://127.0.0.1:9", "right", 5.0).ask("m", PROMPT, True)

    assert asyncio.run(nowhere()).status is None

    class Silent(Gateway):
        async def _chat(self, request):
            await request.body(10**6, 5)
            await asyncio.sleep(600)

    answer = ask(Silent(), False, timeout=0.2)
    assert answer.status is None
    assert answer.error


def run(gateway, roles=(), key="right"):
    async def scenario():
        async with serving(gateway.app) as served:
            known = [(name, served.url if url is None else url) for name, url in roles]
            return await gather(Target("s", served.url, key, known), 10.0)

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_run_against_a_gateway_that_works():
    facts = run(Gateway(), [("decode-worker-0", None), ("prefill-worker-0", "http://127.0.0.1:9")])
    assert [(role.health.status, role.ready.status) for role in facts.roles] == [(200, 200), (None, None)]
    assert facts.models == ["m"]
    assert len(facts.answers) == 8
    assert {answer.status for answer in facts.answers} == {200}
    assert [(refusal.want, refusal.status) for refusal in facts.refusals] == [(401, 401), (404, 404), (400, 400)]
    assert facts.certificate is None
    assert facts.before.keys() == facts.after.keys() == {"decode-worker-0"}
    assert "process_start_time_seconds" in facts.before["decode-worker-0"]


@pytest.mark.parametrize("models", [{"data": []}, {"data": "none"}, {}])
def test_without_a_model_nothing_is_asked(models):
    facts = run(Gateway(models=models))
    assert facts.answers == facts.refusals == facts.models == []


def test_a_scheduler_that_answers_nonsense():
    class Odd(Gateway):
        def __init__(self):
            super().__init__()
            self.app.route("GET", "/v1/workers", self._nonsense)

        async def _nonsense(self, _request):
            return Response(b"[]")

    facts = run(Odd(), [("scheduler-0", None)])
    assert facts.roles[0].workers is None
