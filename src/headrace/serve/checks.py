"""Checks of messages within answers, by the packages of the protocols that they are in: `message_check`.

Only A2UI has one so far. Its package is an extra (`pip install headrace[a2ui]`), imports more than protocol code may, and
takes about a second to load; so it is loaded here, when the first caller asks for A2UI.

The rule: a message is right where the package's `validate_payload` says so, which checks as a renderer would. It takes
50 µs a component, and ten times as much a function call, while all other streams of the worker wait; so what it consists of
is called here one by one, without its copies, in a fifth of that. The trade-off: this must know what it consists of, which
the tests compare. The components of a surface are checked where it uses the protocol's basic catalog; of other catalogs only
their clients know, and what uses them is checked as far as every message must be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from headrace.formats.base import Format, MessageCheck
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest

_LONGEST = 300
_loading = threading.Lock()
_ready: dict[str, MessageCheck] = {}


async def message_check(answer: Format) -> MessageCheck | None:
    """The check for answers of this format; None where there is nothing to check. Waits only the first time.

    Raises GatewayError (501) where the package is not installed.
    """
    if answer.name not in _LOADERS:
        return None
    ready = _ready.get(answer.name)
    return ready if ready is not None else await asyncio.to_thread(load_check, answer)


def load_check(answer: Format) -> MessageCheck | None:
    """The same for programs that may wait."""
    load = _LOADERS.get(answer.name)
    if load is None:
        return None
    with _loading:
        if answer.name not in _ready:
            try:
                _ready[answer.name] = load()
            except ImportError:
                raise GatewayError(
                    ErrorInfo(
                        code=ErrorCode.INTERNAL_ERROR,
                        status=501,
                        type="not_installed",
                        message=f"{answer.name} needs a package that is not installed here: pip install 'headrace[a2ui]'",
                        retryable=False,
                    )
                ) from None
        return _ready[answer.name]


def _a2ui() -> MessageCheck:
    from a2ui.core import A2uiError, link_catalogs
    from a2ui.core.schema.v0_9.server_to_client import AGENT_TO_RENDERER_DEFS
    from a2ui.utils.validation import validate_payload
    from pydantic import ValidationError

    catalogs = link_catalogs([_basic_catalog()])
    (basic,) = catalogs
    shapes = {
        name[0].lower() + name[1:].removesuffix("Message"): shape for name, shape in AGENT_TO_RENDERER_DEFS.items()
    }
    settled = _settled(basic, shapes)

    def is_basic(action: str, body: dict[str, Any], known: Mapping[str, str]) -> bool:
        """Whether the basic catalog decides. A surface of an earlier answer: if it has all the components."""
        catalog = body.get("catalogId") or known.get(body["surfaceId"])
        if catalog is not None:
            return bool(catalog == basic.catalog_id)
        return all(basic.get_component(one["component"]) is not None for one in body.get("components", ()))

    def check(message: dict[str, Any], known: Mapping[str, str]) -> None:
        action = next(name for name in message if name in shapes)
        body = message[action]
        try:
            if not is_basic(action, body, known):
                shapes[action].model_validate(message)
            elif not settled(action, message):
                validate_payload(catalogs, [message], surface_catalog_ids=known)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            raise _problem(first["msg"], ".".join(map(str, first["loc"]))) from None
        except A2uiError as error:
            raise _problem(str(error), _path(getattr(error, "details", None))) from None
        except Exception as error:  # the package is not ours, and what it reads is whatever a model wrote
            raise _problem(f"the message could not be checked ({type(error).__name__})", "") from None

    _warm(check, basic.catalog_id)
    return check


def _basic_catalog() -> Any:
    from a2ui.core.basic_catalog.v0_9 import BasicCatalog

    class Catalog(BasicCatalog):
        @cached_property
        def validation_schema(self) -> dict[str, Any]:
            """Shared: the package's own is a new copy for every function call that is checked, in half a millisecond."""
            return super().validation_schema

    return Catalog()


def _settled(catalog: Any, shapes: Mapping[str, Any]) -> Callable[[str, dict[str, Any]], bool]:
    """The quick check: True where a message is right, False where `validate_payload` has to say so; raises what that would."""
    from a2ui.core import ComponentModel, DataModel, PayloadValidator, ValidationConfig
    from a2ui.core.validation import analyze_topology, validate_recursion_and_paths
    from pydantic import ValidationError

    # as `validate_payload` does for a surface that other messages may have given components
    loose = ValidationConfig(allow_dangling_references=True, allow_missing_root=True, allow_orphan_components=True)
    validator = PayloadValidator(catalog, config=loose)

    def fits(component: dict[str, Any], model: Any) -> bool:
        """Whether the component's model takes it, and has seen all of it: models do not look into function calls."""
        try:
            model.model_validate(component)
        except ValidationError:
            return False
        return not _calls(component)

    def components_settled(components: list[dict[str, Any]]) -> bool:
        made: dict[str, Any] = {}
        for component in components:
            id, kind = component["id"], component["component"]
            if not id or id in made or "catalogId" in component:
                return False
            known = catalog.get_component(kind)
            if known is None or not fits(component, known.model_class):
                validator.validate_component(component)
            own = {name: value for name, value in component.items() if name not in ("id", "component")}
            made[id] = ComponentModel(id, kind, catalog, own)
        analyze_topology(made, config=loose)
        return True

    def settled(action: str, message: dict[str, Any]) -> bool:
        if action not in ("updateComponents", "updateDataModel"):
            return False
        shapes[action].model_validate(message)
        validate_recursion_and_paths([message])
        body = message[action]
        if action == "updateComponents":
            return components_settled(body["components"])
        path = body.get("path")
        DataModel().set("/" if path is None else path, body.get("value"))
        return True

    return settled


def _calls(value: Any) -> bool:
    """Whether a function is called in it."""
    if isinstance(value, dict):
        return "call" in value or "function" in value or any(map(_calls, value.values()))
    return isinstance(value, list) and any(map(_calls, value))


def _warm(check: MessageCheck, catalog: str) -> None:
    """The package builds its schemas when they are first needed, which no stream shall wait for."""
    say = {"call": "formatString", "args": {"value": "x"}}
    root = {"id": "root", "component": "Column", "children": ["text", "nobody"]}
    text = {"id": "text", "component": "Text", "text": say}
    wrong = {"id": "text", "component": "Text"}
    known = {"s": catalog}
    check({"version": "v0.9", "createSurface": {"surfaceId": "s", "catalogId": catalog}}, {})
    check({"version": "v0.9", "updateComponents": {"surfaceId": "s", "components": [root, text]}}, known)
    try:
        check({"version": "v0.9", "updateComponents": {"surfaceId": "s", "components": [root, wrong]}}, known)
    except InvalidRequest:
        return
    raise AssertionError("the A2UI package takes a Text without a text")


def _path(details: Sequence[Any] | None) -> str:
    return str(getattr(details[0], "path", "") or "") if details else ""


def _problem(message: str, path: str) -> InvalidRequest:
    line = " ".join(message.split())
    return InvalidRequest(line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "...", param=path)


_LOADERS: dict[str, Callable[[], MessageCheck]] = {"a2ui": _a2ui}
