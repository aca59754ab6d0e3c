"""A conversation becomes the same prompt as in transformers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from services.common.errors import InvalidRequest
from services.common.settings import SettingsError
from services.gateway.chat_template import ChatTemplate
from services.gateway.tokenization import Tokenization

CONVERSATIONS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Was ist das? 😀 中文\n\n  x"}],
    [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "<|im_end|> three <b>&amp;</b>"},
    ],
    [{"role": "user", "content": ""}],
]
# What other models' templates use.
TEMPLATE = """{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == "system" %}{% continue %}{% endif %}
    {%- if message.content == "stop" %}{{ raise_exception("No stopping: " + message.role) }}{% endif %}
    {% generation %}[{{ message | tojson }}]{% endgeneration %}
{% endfor %}
{%- set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}
{%- if tools %}tools{% endif %}{% if add_generation_prompt %}<go>{% endif %}"""


@pytest.fixture(scope="module")
def reference(model_path: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(model_path))


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_equal_to_transformers(
    model_path: Path, tokenization: Tokenization, reference: Any, messages: list[dict[str, str]]
) -> None:
    text = ChatTemplate(model_path).render(messages)
    assert text == reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = asyncio.run(tokenization.encode(text, add_special_tokens=False))
    expected = reference.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)
    assert ids == expected["input_ids"]


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_another_template(tmp_path: Path, reference: Any, messages: list[dict[str, str]]) -> None:
    """From chat_template.jinja, with loop controls, namespaces, tojson and generation blocks."""
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    config = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    expected = reference.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, chat_template=TEMPLATE
    )
    assert ChatTemplate(tmp_path).render(messages) == expected


def write(folder: Path, template: object) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


def test_a_template_that_refuses(tmp_path: Path) -> None:
    template = ChatTemplate(write(tmp_path, [{"name": "default", "template": TEMPLATE}]))
    with pytest.raises(InvalidRequest, match="No stopping: user"):
        template.render([{"role": "user", "content": "stop"}])


def test_a_template_cannot_reach_out(tmp_path: Path) -> None:
    template = ChatTemplate(write(tmp_path, "{{ messages.__class__.__mro__[1].__subclasses__() }}"))
    with pytest.raises(InvalidRequest):
        template.render([{"role": "user", "content": "x"}])
    changing = ChatTemplate(write(tmp_path, "{{ messages.append(1) }}"))
    with pytest.raises(InvalidRequest):
        changing.render([{"role": "user", "content": "x"}])


@pytest.mark.parametrize("template", [None, "{% for %}", [{"name": "tools", "template": "x"}]])
def test_a_folder_without_a_good_template(tmp_path: Path, template: object) -> None:
    with pytest.raises(SettingsError, match="template"):
        ChatTemplate(write(tmp_path, template))
