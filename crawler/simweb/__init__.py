"""A synthetic web for tests: any number of domains and pages, computed from a seed and served by one process.

In data-flow order:

1. `Features` defines the contents of the web.
2. `World` computes the response of each URL (`sites` -> `numbered`, `services`, `hostile` -> `Resource`).
3. `expect` follows the links of the world as a perfect crawl would.
4. `SimWebServer` turns resources into bytes (`pages`, `answers`) and writes a `RequestLog`.
5. `judge` compares the log with the expectation. It checks that the crawler was complete and polite.
"""

from crawler.simweb.expected import Expected, Policy, Visit, expect
from crawler.simweb.features import Charset, Coding, Features, Kind
from crawler.simweb.hazards import Hazard
from crawler.simweb.log import Record, RequestLog, read_log
from crawler.simweb.log_judge import JudgeLimits, JudgeReport, judge
from crawler.simweb.robots import RobotsKind
from crawler.simweb.server import SimWebServer
from crawler.simweb.world import World

__all__ = [
    "Charset",
    "Coding",
    "Expected",
    "Features",
    "Hazard",
    "JudgeLimits",
    "JudgeReport",
    "Kind",
    "Policy",
    "Record",
    "RequestLog",
    "RobotsKind",
    "SimWebServer",
    "Visit",
    "World",
    "expect",
    "judge",
    "read_log",
]
