"""Renders pages with scripts in a Chromium that has no network: each of its requests is answered by the crawler.

    Renderer (renderer.py)  slots with one browser each, their queue and replacement, and a breaker if none starts
      Chromium (process.py) one browser process: flags, namespace, limits, memory; it is killed, never asked to close
        Pipe (pipe.py)      messages of the DevTools protocol over two pipes
      OpenPage (page.py)    the life of one page under one deadline: its requests, its links, its DOM, its screenshot

The caller passes the page as the server has sent it, and a function that answers requests or raises `Refused`. The result
says what became of the page (`Rendered`). Whatever the page does, the result comes within `RenderLimits.time_s` and
`GRACE_S`.

Interception is no fence: preconnect, WebRTC and speculation rules pass it. Hence the namespace without a network interface,
and flags that close each of these ways where the machine allows no namespace.
"""

from crawler.browser.page import GRACE_S, RenderLimits
from crawler.browser.renderer import Renderer

__all__ = ["GRACE_S", "RenderLimits", "Renderer"]
