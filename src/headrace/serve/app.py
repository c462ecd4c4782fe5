"""The ASGI application: inference paths to the streaming driver, everything else to the ordinary pages.

Any ASGI server can run it (`headrace.serve.app:application(config)`); `server.py` runs it under uvicorn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from headrace.config import Config
from headrace.serve.driver import Send
from headrace.serve.inference import Inference, Receive
from headrace.serve.negotiation import NATIVE
from headrace.serve.pages import method_not_allowed, pages
from headrace.serve.runtime import Runtime
from headrace.serve.ticker import Ticker

logger = logging.getLogger("headrace.serve")


class Application:
    """One gateway process, as ASGI 3 sees it."""

    def __init__(self, config: Config, *, env: Mapping[str, str] | None = None) -> None:
        self.runtime = Runtime(config, env=env)
        self.ticker = Ticker()
        self._inference = Inference(self.runtime, self.ticker)
        self._pages = pages(self.runtime)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["path"] not in NATIVE:
                await self._pages(dict(scope), receive, send)
            elif scope["method"] == "POST":
                await self._inference(scope, receive, send)
            else:
                refusal = method_not_allowed(scope["method"], scope["path"], "POST")
                await refusal(dict(scope), receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise ValueError(f"connections of type {scope['type']!r} are not served")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.runtime.start()
        except (OSError, ValueError) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.ticker.close()
        await self.runtime.aclose()
        await send({"type": "lifespan.shutdown.complete"})
