"""Renders a conversation with the model's own chat template, in the environment that transformers gives templates."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from services.common.errors import InvalidRequest
from services.common.settings import SettingsError


class _Generation(Extension):
    """{% generation %} marks the assistant's part for training; when serving it is its content and no more."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own way to declare them

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """The template of a model folder: chat_template.jinja, else tokenizer_config.json's `chat_template`."""

    def __init__(self, model_path: Path) -> None:
        config = _read_json(model_path / "tokenizer_config.json")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(_source(model_path, config))
        except jinja2.TemplateError as error:
            raise SettingsError(f"MODEL_PATH {model_path}: the chat template is wrong: {error}") from None
        self._special = {
            name: value
            for name, token in config.items()
            if name.endswith("_token") and (value := _text_of(token)) is not None
        }

    def render(self, messages: list[dict[str, str]]) -> str:
        """The prompt up to where the assistant speaks; raises InvalidRequest where the template refuses."""
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._special
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from None


def _source(model_path: Path, config: dict[str, Any]) -> str:
    file = model_path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several named ones
        template = next((entry["template"] for entry in template if entry.get("name") == "default"), None)
    if not isinstance(template, str):
        raise SettingsError(f"MODEL_PATH {model_path}: neither chat_template.jinja nor a chat_template to be found")
    return template


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"MODEL_PATH: cannot read {path}: {error}") from None
    return value


def _text_of(token: object) -> str | None:
    """A special token stands in the config as a string or as an object with its content."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
